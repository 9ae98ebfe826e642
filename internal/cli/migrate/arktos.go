// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kubetenant/kubetenant/authn/basicauth"
	"github.com/kubetenant/kubetenant/authn/tokenfile"
	"github.com/kubetenant/kubetenant/authz/abac"
	"github.com/kubetenant/kubetenant/tenant"
)

// credential is a converted record from a token or password file.
type credential struct {
	line    int
	fields  []string
	omitted bool // the original record had no tenant, so it belongs to the system tenant
}

// arktosCredentials converts a token or password file of Arktos 1.0
// (staging/src/k8s.io/apiserver pkg/authentication/token/tokenfile). A record whose last two
// fields are empty and a tenant belongs to that tenant. A record without fields after the groups
// belongs to the system tenant. If several records have the same token, or are for the same user
// of a tenant, only the last one is converted, because Arktos used the last one. A record with
// an empty UID is not converted, because Arktos may have read the next field as the tenant.
func arktosCredentials(data []byte, file, kind string) (*Result, error) {
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord = -1
	result := &Result{Files: map[string]string{}}
	checkSecret := basicauth.CheckPassword
	if kind == "tokenFile" {
		checkSecret = tokenfile.CheckToken
	}
	var records []credential
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		var malformed *csv.ParseError
		if errors.As(err, &malformed) {
			return nil, fmt.Errorf("line %d: %w", malformed.Line, malformed.Err)
		}
		if err != nil {
			return nil, err
		}
		line, _ := r.FieldPos(0)
		location := fmt.Sprintf("line %d", line)
		converted, reason := arktosRecord(fields)
		if reason != "" {
			result.reportUnconverted(location, "%s", reason)
			continue
		}
		if err := checkSecret(converted[0]); err != nil {
			result.reportUnconverted(location, "the secret: %v", err)
			continue
		}
		id := converted[len(converted)-1]
		if slices.ContainsFunc(fields[min(4, len(fields)):], func(field string) bool { return field != "" && field != id }) {
			result.reportUnconverted(location, "the fields between the groups and the tenant (Arktos ignored them)")
		}
		if groups := withoutReserved(&converted, id); len(groups) > 0 {
			result.reportUnconverted(
				location,
				"the groups %s, which are reserved for the system tenant",
				strings.Join(groups, ", "),
			)
		}
		key := func(fields []string) string {
			if kind == "tokenFile" {
				return fields[0]
			}
			return fields[1] + "\x00" + fields[len(fields)-1]
		}
		records = slices.DeleteFunc(records, func(earlier credential) bool {
			same := key(earlier.fields) == key(converted)
			if same {
				result.reportUnconverted(
					fmt.Sprintf("line %d", earlier.line),
					"replaced by line %d, which Arktos used instead",
					line,
				)
			}
			return same
		})
		records = append(records, credential{line, converted, len(fields) < 5 || fields[len(fields)-2] != ""})
	}
	return result, result.writeCredentials(records, file, kind)
}

// writeCredentials adds the file with the records, and a configuration that refers to this file.
func (r *Result) writeCredentials(records []credential, file, kind string) error {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	omitted := 0
	for _, rec := range records {
		if rec.omitted {
			omitted++
		}
		if err := w.Write(rec.fields); err != nil {
			return err
		}
	}
	w.Flush()
	if omitted > 0 {
		r.Next = append(r.Next,
			fmt.Sprintf("check the records of %s that end with ,,system: %d of them had no tenant in Arktos", file, omitted))
	}
	r.Files[file] = out.String()
	r.Files["tenancy.yaml"] = fmt.Sprintf("apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n"+
		"authentication:\n  sources:\n  - { name: %s, %s: { path: %s, defaultTenant: \"\" } }\n",
		strings.TrimSuffix(file, ".csv"), kind, file)
	return w.Error()
}

// arktosRecord returns a record in the format of this project, in which every record has a
// tenant. If the record cannot be converted, the second result is the reason.
func arktosRecord(fields []string) ([]string, string) {
	n := len(fields)
	switch {
	case n < 3:
		return nil, fmt.Sprintf("%d fields instead of at least 3", n)
	case fields[0] == "":
		return nil, "the secret is missing; Arktos ignored the record"
	case fields[1] == "":
		return nil, "the user name is missing"
	case fields[2] == "" && n == 4:
		return nil, "the UID is missing; Arktos read the next field as the tenant, but it may be a group"
	case fields[2] == "":
		return nil, "the UID is missing"
	}
	id := tenant.System().String()
	if n > 4 && fields[n-2] == "" {
		id = fields[n-1]
	}
	if _, err := tenant.Parse(id); err != nil {
		return nil, fmt.Sprintf("tenant field: %v", err)
	}
	for i, fieldName := range []string{"the user name", "the UID"} {
		if err := tenant.CheckForm(fieldName, fields[1+i]); err != nil {
			return nil, fmt.Sprintf("field %d: %v", i+2, err)
		}
	}
	out := slices.Clone(fields[:3])
	groups := ""
	if n > 3 {
		groups = fields[3]
	}
	for group := range strings.SplitSeq(groups, ",") {
		if err := tenant.CheckForm("a group", group); err != nil {
			return nil, fmt.Sprintf("field 4: %v", err)
		}
	}
	if groups != "" {
		out = append(out, groups)
	}
	if n > 4 && id == tenant.System().String() && fields[n-1] != id {
		return nil, "fields after the groups, but no tenant; Arktos used the system tenant, but another tenant may be " +
			"intended"
	}
	return append(out, "", id), ""
}

// withoutReserved removes the groups that are reserved for the system tenant from the record of
// another tenant. It returns the removed groups.
func withoutReserved(fields *[]string, id string) (removed []string) {
	f := *fields
	if id == tenant.System().String() || len(f) < 6 {
		return nil
	}
	var groups []string
	for group := range strings.SplitSeq(f[3], ",") {
		if strings.HasPrefix(group, "system:") || strings.HasPrefix(group, tenant.GroupPrefix) ||
			group == "kubeadm:cluster-admins" {
			removed = append(removed, group)
		} else {
			groups = append(groups, group)
		}
	}
	f[3] = strings.Join(groups, ",")
	if f[3] == "" {
		f = slices.Delete(f, 3, 4)
	}
	*fields = f
	return removed
}

// arktosPolicy converts a policy file that follows the design of Arktos. Its format is upstream's
// ABAC format, with the tenant in a separate field or before the colon in the user's name.
func arktosPolicy(data []byte) (*Result, error) {
	result := &Result{Files: map[string]string{}}
	var out strings.Builder
	number := 0
	for text := range bytes.Lines(data) {
		number++
		text = bytes.TrimSpace(text)
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		location := fmt.Sprintf("line %d", number)
		line, reason := arktosLine(text)
		if reason != "" {
			result.reportUnconverted(location, "%s", reason)
		}
		if line == nil {
			continue
		}
		encoded, err := json.Marshal(line)
		if err != nil {
			return nil, err
		}
		if _, err := abac.Parse(encoded); err != nil {
			result.reportUnconverted(location, "%s", strings.TrimPrefix(err.Error(), "line 1: "))
			continue
		}
		out.Write(append(encoded, '\n'))
	}
	result.Files["policy.jsonl"] = out.String()
	result.Files["tenancy.yaml"] = "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\n" +
		"authorization:\n  abac: { path: policy.jsonl }\n"
	return result, nil
}

// arktosLine returns a policy line in the format of this project, or nil if the line cannot be
// converted. reason describes the part of the line that is not converted.
func arktosLine(text []byte) (line map[string]any, reason string) {
	var in map[string]any
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, "the line is not a JSON object"
	}
	spec, hasSpec := in["spec"].(map[string]any)
	if hasSpec {
		reason = unreadFields(in, "apiVersion", "kind", "spec")
	} else {
		spec = map[string]any{}
		for key, value := range in { // in the unversioned format, an omitted field matches everything
			if key != "apiVersion" && key != "kind" {
				spec[key] = value
			}
		}
		if _, ok := spec["apiGroup"]; ok {
			return nil,
				"apiGroup: Arktos ignored it in the unversioned format, so the line would apply to all API groups; use the " +
					"format with apiVersion, kind and spec"
		}
		for _, key := range []string{"resource", "namespace"} {
			if _, ok := spec[key]; !ok {
				spec[key] = "*"
			}
		}
		spec["apiGroup"] = "*"
	}
	name, _ := spec["user"].(string)
	group, _ := spec["group"].(string)
	id, named := spec["tenant"].(string)
	if before, _, found := strings.Cut(name, ":"); !named && found && before != "system" {
		id = before
		named = true
	}
	if _, ok := spec["space"]; ok {
		reason = joined(reason, "spec.space: Arktos ignored it")
		delete(spec, "space")
	}
	if id == "*" || strings.HasPrefix(name, "*:") {
		return nil, "the line applies to every tenant; write one line for each tenant, with its own space"
	}
	if !named && (name == "*" || group == "*" || group == "system:authenticated") {
		reason = joined(reason, "it applied to every caller and now applies only to callers of the system tenant; for other "+
			"callers, set \"tenant\" and \"space\"")
	}
	if named && id != tenant.System().String() {
		spec["tenant"], spec["space"] = id, id
	} else {
		delete(spec, "tenant")
	}
	return map[string]any{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": spec}, reason
}

// unreadFields returns a text that lists the unknown fields of an object, or "" if there are
// none.
func unreadFields(object map[string]any, known ...string) (reason string) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(known, key) {
			reason = joined(reason, fmt.Sprintf("%q: Arktos ignored it", key))
		}
	}
	return reason
}

// joined joins two texts with a semicolon. If a is empty, it returns b.
func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}
