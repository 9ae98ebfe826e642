// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authz_test

import (
	"strconv"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/authz"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestIdentityForm checks the form and the size of the names and groups of an identity that the
// server authenticated itself. The limits apply only to callers of tenants, with an allowance for
// groups that servers add later. Extras are not checked.
func TestIdentityForm(t *testing.T) {
	numbered := func(n, width int) (groups []string) {
		for i := range n {
			groups = append(groups, strconv.Itoa(i)+strings.Repeat("x", width))
		}
		return groups
	}
	added := []string{"tenant:a", user.AllAuthenticated}
	for name, c := range map[string]struct {
		change func(*user.DefaultInfo)
		is     bool
	}{
		"plain":                     {func(*user.DefaultInfo) {}, false},
		"a name that is not UTF-8":  {func(u *user.DefaultInfo) { u.Name = "a\xff" }, true},
		"a group that is not UTF-8": {func(u *user.DefaultInfo) { u.Groups = []string{"dev", "\xc3"} }, true},
		"a UID with a space":        {func(u *user.DefaultInfo) { u.UID = "u1 " }, true},
		"an extra key with a space": {func(u *user.DefaultInfo) { u.Extra[" example.com/k"] = nil }, false},
		"an extra with a line feed": {func(u *user.DefaultInfo) { u.Extra["example.com/k"] = []string{"v\n"} }, false},
		"maximum groups":            {func(u *user.DefaultInfo) { u.Groups = append(numbered(2000, 0), added...) }, false},
		"too many groups":           {func(u *user.DefaultInfo) { u.Groups = append(numbered(2009, 0), added...) }, true},
		"maximum size":              {func(u *user.DefaultInfo) { u.Groups = append(numbered(128, 1000), added...) }, false},
		"too large":                 {func(u *user.DefaultInfo) { u.Groups = append(numbered(140, 1000), added...) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, id := range []string{"a", tenant.System().String()} {
				u := callerOf(id)
				c.change(u)
				b := authz.New(options(map[string]string{"a--web": "a"}), authorizer.AuthorizerFunc(allowAll), nil)
				decision, reason, err := b.Authorize(t.Context(), podRequest(u, "get", "a--web"))
				denied := decision == authorizer.DecisionDeny && reason == authz.ReasonMalformed.String()
				if err != nil || denied != (c.is && id == "a") || !denied && decision != authorizer.DecisionAllow {
					t.Errorf("%s, tenant %s: %v %q %v", name, id, decision, reason, err)
				}
			}
		})
	}
}
