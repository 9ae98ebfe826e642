// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"bytes"
	"encoding/csv"
	"strings"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
)

// suspicious warns of records that the server accepts, but that are probably mistakes. Examples
// are comments, a header, ignored fields, and records that belong to the system tenant by default.
func suspicious(data []byte, config *configv1alpha1.CredentialFile) []Finding {
	var found []Finding
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	r.FieldsPerRecord = -1
	for {
		fields, err := r.Read()
		if err != nil {
			return found
		}
		if len(fields) < 3 || fields[0] == "" {
			continue
		}
		for _, w := range append(unreadFields(fields), suspiciousFields(fields)...) {
			line, column := r.FieldPos(w.field)
			found = append(found, Finding{
				Line:     line,
				Column:   column,
				Severity: Warning,
				Reason:   w.reason,
				Fix:      w.fix,
			})
		}
		if last := len(fields) - 1; config.Default().IsSystem() && !namesTenant(fields) {
			line, column := r.FieldPos(last)
			found = append(found, Finding{
				Line:     line,
				Column:   column,
				Severity: Warning,
				Reason:   "the record names no tenant: it is the system tenant's",
				Fix:      "end it with ,,TENANT (,,system for the system tenant), or set defaultTenant: \"\" in the configuration",
			})
		}
	}
}

func namesTenant(fields []string) bool {
	n := len(fields)
	return n >= 5 && fields[n-2] == ""
}

// suspiciousField is a warning about a field in a record.
type suspiciousField struct {
	field       int
	reason, fix string
}

// unreadFields warns of the fields after the groups, which the server ignores.
func unreadFields(fields []string) []suspiciousField {
	end := len(fields)
	if namesTenant(fields) {
		end -= 2
	}
	if end <= 4 {
		return nil
	}
	return []suspiciousField{{
		4, "the server does not read this field: it is neither a group nor the tenant",
		`write several groups as one field in quotes, such as "dev,ops", and the tenant after two commas`,
	}}
}

// suspiciousFields warns of fields whose content is probably a mistake.
func suspiciousFields(fields []string) []suspiciousField {
	var odd []suspiciousField
	if strings.EqualFold(fields[1], "user") && strings.EqualFold(fields[2], "uid") {
		odd = append(odd, suspiciousField{
			0, "the record looks like a header, but the server accepts its first field as a secret",
			"remove the record: the format has no header",
		})
	}
	if strings.HasPrefix(fields[0], "//") || strings.HasPrefix(fields[0], "-- ") {
		odd = append(odd, suspiciousField{
			0, "the record looks like a comment, but the server accepts its first field as a secret",
			"remove the record: the format has no comments",
		})
	}
	for i, field := range fields[:min(len(fields), 4)] {
		switch {
		case strings.ContainsAny(field, "“”„‟«»‹›‘’‚‛＂"):
			odd = append(odd, suspiciousField{
				i, "the field contains a typographic quotation mark, which does not quote anything",
				`use the quotation mark of ASCII: "`,
			})
		case i > 0 && (strings.HasPrefix(field, "'") || strings.HasSuffix(field, "'")):
			odd = append(odd, suspiciousField{
				i, "the field begins or ends with an apostrophe, which does not quote anything",
				`use the quotation mark of ASCII: "`,
			})
		case i == 3 && strings.ContainsAny(field, ";|"):
			odd = append(odd, suspiciousField{
				i, "a group contains a semicolon or a vertical bar, which does not separate groups",
				"separate groups with commas",
			})
		}
	}
	return odd
}

// credentialFix returns the fix for a problem with a credential, or "".
func credentialFix(text string) string { return fixOf(credentialFixes(), text) }

// credentialFixes returns pairs of a substring of a message and the fix for this message. The
// first pair whose substring is in the message applies.
func credentialFixes() [][2]string {
	return [][2]string{
		{"must have at least", "write secret,user,uid, then groups in quotes, then ,,TENANT"},
		{"two empty fields", "put the tenant after the last comma"},
		{"before a tenant", "remove the empty field, or end the record with ,,TENANT"},
		{"no tenant: name", "end the record with ,,TENANT, or with ,,system for a caller of the system tenant"},
		{"earlier line", "remove one of the two records"},
		{"is the system tenant's", "choose another name, or end the record with ,,system"},
		{"invalid tenant", "a tenant is a label value: at most 63 letters, digits, -, _ and ., and neither all nor tenant"},
		{"empty password", "write a password or its bcrypt hash (htpasswd -nB), or remove the record"},
		{"UTF-8", "convert the file with iconv -t UTF-8"},
		{"white space", "remove the leading and trailing white space"},
		{"invisible character", "remove the invisible characters"},
		{"control character", "remove the control characters"},
		{"looks like a comment", "remove the record"},
		{"not supported", "htpasswd -nB USER prints a bcrypt hash; a token is written as it is"},
		{"exceeds the limits", "remove groups: an identity can have at most 2,000 groups, and at most 128 KiB in total"},
		{"contain a colon", "use a name without a colon: Basic authentication cannot send it"},
		{"bcrypt cost", "hash it with a cost of at most 16"},
		{"not a valid bcrypt hash", "use the complete 60-character hash (htpasswd -nB)"},
		{"quote", "put the field in quotes and write quotes in it twice"},
		{"empty", "write the user name and the uid"},
	}
}
