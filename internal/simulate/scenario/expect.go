// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/tenant"
)

func compareIdentity(e *Expect, got Authentication) (string, string, bool) {
	text := got.String()
	switch {
	case e.Unauthenticated:
		anonymous := got.User != nil && got.User.Name == user.Anonymous
		return "unauthenticated", text, got.Unclaimed || anonymous
	case e.Refused != nil:
		ok := got.Opaque || got.Refused != "" && strings.Contains(got.Refused, *e.Refused)
		return fmt.Sprintf("refused with %q", *e.Refused), text, ok && got.User == nil
	}
	if got.User == nil {
		return "a user", text, false
	}
	var want, have []string
	compare := func(name string, expected, actual any) {
		if !reflect.DeepEqual(expected, actual) {
			want = append(want, fmt.Sprintf("%s %q", name, expected))
			have = append(have, fmt.Sprintf("%s %q", name, actual))
		}
	}
	u := e.User
	if u.Name != nil {
		compare("name", *u.Name, got.User.Name)
	}
	if u.UID != nil {
		compare("uid", *u.UID, got.User.UID)
	}
	if u.Groups != nil {
		compare("groups", append([]string{}, *u.Groups...), got.User.ownGroups())
	}
	if u.Tenant != nil {
		compare("tenant", *u.Tenant, strings.Join(got.User.Extra[tenant.ExtraKey], ","))
	}
	for key, values := range u.Extra {
		compare("extra "+key, values, got.User.Extra[key])
	}
	return strings.Join(want, ", "), strings.Join(have, ", "), len(want) == 0
}

// ownGroups returns the user's groups, except the tenant's group and system:authenticated.
func (u *User) ownGroups() []string {
	groups := []string{}
	for _, g := range u.Groups {
		if g != user.AllAuthenticated && !strings.HasPrefix(g, tenant.GroupPrefix) {
			groups = append(groups, g)
		}
	}
	return groups
}

func (i Authentication) String() string {
	switch {
	case i.User != nil:
		return fmt.Sprintf("user %q of tenant %q", i.User.Name, i.User.Extra[tenant.ExtraKey])
	case i.Refused != "":
		return "refused: " + i.Refused
	}
	return "unauthenticated"
}

func compareDecision(e *Expect, got Decision) (string, string, bool) {
	want := e.Decision
	ok := got.Decision == e.Decision
	if e.NotAllowed {
		want = "not allowed"
		ok = got.Decision == "deny" || got.Decision == "no-opinion"
	}
	if e.Reason != "" {
		want += fmt.Sprintf(" with reason %q", e.Reason)
		ok = ok && strings.Contains(got.Reason, e.Reason)
	}
	return want, fmt.Sprintf("%s with reason %q", got.Decision, got.Reason), ok
}

func compareAdmission(e *Expect, got Admission) (string, string, bool) {
	if e.Denied != nil {
		ok := got.Denied != "" && strings.Contains(got.Denied, *e.Denied)
		text := got.Denied
		if text == "" {
			text = "admitted"
		}
		return fmt.Sprintf("denied with %q", *e.Denied), text, ok
	}
	if got.Denied != "" || e.Object == nil {
		return "admitted", "denied: " + got.Denied, got.Denied == ""
	}
	var want, have any
	if err := json.Unmarshal(e.Object.Raw, &want); err != nil {
		return "an object", err.Error(), false
	}
	if err := json.Unmarshal(got.Object, &have); err != nil {
		return "an object", err.Error(), false
	}
	return "an object that contains " + string(e.Object.Raw), string(got.Object), isSubset(want, have)
}

// isSubset reports whether have contains all values of want. If want contains a null, have must not
// contain the key.
func isSubset(want, have any) bool {
	fields, isMap := want.(map[string]any)
	if !isMap {
		return reflect.DeepEqual(want, have)
	}
	object, isMap := have.(map[string]any)
	for key, value := range fields {
		if value == nil {
			if _, present := object[key]; present {
				return false
			}
			continue
		}
		if !isMap || !isSubset(value, object[key]) {
			return false
		}
	}
	return true
}
