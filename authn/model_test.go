// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn_test

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/authn"
	"github.com/kubetenant/kubetenant/tenant"
)

// identityModel models a source and the rules of docs/identity.md for TestIdentityModel. It uses
// strings only, and shares no code with the implementation.
type identityModel struct {
	tenants                                []string
	usernamePrefix, groupsPrefix           string
	users, prefixes, groups, organizations []string // reserved names
	qualify, remote, accounts              bool
	extras                                 []string // reserved keys that the source sets itself
	name                                   string
	inGroups                               []string
	extra                                  map[string][]string
}

var modelTenants = []string{"a", "b", "kubeadm", "system", "root", "a--b", "X"}

func isTenantName(name string) bool {
	return name == "x" || slices.Contains(modelTenants, name)
}

func (m *identityModel) isReservedUser(name string) bool {
	return strings.HasPrefix(name, "system:") || slices.Contains(m.users, name) ||
		slices.ContainsFunc(m.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func (m *identityModel) isReservedGroup(name string) bool {
	return strings.HasPrefix(name, "system:") || strings.HasPrefix(name, "tenant:") || slices.Contains(m.groups, name) ||
		slices.Contains(m.organizations, name)
}

// domain returns the domain of an extra key in lower case.
func domain(key string) string {
	before, _, _ := strings.Cut(strings.ToLower(key), "/")
	return before
}

func isUnder(key string, domains ...string) bool {
	return slices.ContainsFunc(domains, func(d string) bool {
		return domain(key) == d || strings.HasSuffix(domain(key), "."+d)
	})
}

// clean returns the identity that the chain must return, or nil if the chain must reject it.
func (m *identityModel) clean() *user.DefaultInfo {
	ids := m.extra["kubetenant.dev/tenant"]
	if len(ids) != 1 || !isTenantName(ids[0]) {
		return nil
	}
	id := ids[0]
	minted := slices.Contains(m.tenants, id) || slices.Contains(m.tenants, "*") && id != "system"
	if !minted || m.name == "" || slices.Contains(hygieneBad, m.name) {
		return nil
	}
	for _, group := range m.inGroups {
		if slices.Contains(hygieneBad, group) {
			return nil
		}
	}
	for key := range m.extra {
		if key == "kubetenant.dev/tenant" {
			continue
		}
		if strings.EqualFold(key, "kubetenant.dev/tenant") {
			return nil
		}
		if slices.Contains(m.extras, key) || key == "kubetenant.dev/source" && !m.remote {
			continue
		}
		if m.remote && isUnder(key, "kubetenant.dev", "kubernetes.io", "k8s.io") ||
			domain(key) == "kubetenant.dev" && strings.Contains(key, "/") {
			return nil
		}
	}
	qualifier := ""
	if m.qualify && id != "system" && !m.accounts {
		qualifier = id + ":"
	}
	if m.accounts {
		parts := strings.Split(m.name, ":")
		if len(parts) != 4 || parts[0] != "system" || parts[1] != "serviceaccount" || parts[2] == "" || parts[3] == "" ||
			!slices.Equal(m.inGroups, []string{"system:serviceaccounts", "system:serviceaccounts:" + parts[2]}) {
			return nil
		}
		return m.validated("", id)
	}
	free := id == "system" && !m.remote
	name := m.usernamePrefix + m.name
	if strings.HasPrefix(name, "system:serviceaccount") ||
		!free && (m.isReservedUser(name) || m.isReservedUser(qualifier+name)) {
		return nil
	}
	for _, group := range m.inGroups {
		group = m.groupsPrefix + group
		if strings.HasPrefix(group, "system:serviceaccount") || strings.HasPrefix(group, "tenant:") ||
			!free && (m.isReservedGroup(group) || m.isReservedGroup(qualifier+group)) {
			return nil
		}
	}
	return m.validated(qualifier, id)
}

func (m *identityModel) validated(qualifier, id string) *user.DefaultInfo {
	out := &user.DefaultInfo{Name: qualifier + m.usernamePrefix + m.name, Extra: map[string][]string{}}
	for _, group := range m.inGroups {
		out.Groups = append(out.Groups, qualifier+m.groupsPrefix+group)
	}
	out.Groups = append(out.Groups, "tenant:"+id, "system:authenticated")
	for key, values := range m.extra {
		out.Extra[key] = values
	}
	out.Extra["kubetenant.dev/source"] = []string{"src"}
	return out
}

var (
	hygieneWords = []string{
		"alice", "root", "ops", "cluster-admins", "kubeadm:cluster-admins", "masters", "system:masters", "system:x", "system",
		"tenant:a", "tenant", "oidc:alice", "boot:x", "x:root",
		"system:serviceaccount:ns:n", "system:serviceaccount:ns", "system:serviceaccounts:ns", "a:alice", "grüße",
	}
	hygieneBad  = []string{" alice", "alice ", "al\tice", "al\u200bice", "alice\n", "\xff", "\u0000"}
	hygieneKeys = []string{
		"kubetenant.dev/tenant", "Kubetenant.dev/tenant", "kubetenant.dev/TENANT", "kubetenant.dev/source",
		"kubetenant.dev/x", "KubeTenant.dev/x", "authentication.kubernetes.io/credential-id",
		"x.k8s.io/y", "k8s.io", "example.com/key", "key", "a.kubetenant.dev/x", "xkubetenant.dev/x", "kubetenant.dev",
	}
)

func pick(r *rand.Rand, all ...string) string { return all[r.IntN(len(all))] }

func some(r *rand.Rand, n int, all ...string) []string {
	var out []string
	for range r.IntN(n + 1) {
		out = append(out, pick(r, all...))
	}
	return out
}

func makeIdentity(r *rand.Rand) *identityModel {
	m := &identityModel{
		tenants:       some(r, 3, append(modelTenants, "*", "*", "*", "*", "*", "*")...),
		users:         []string{"root"},
		prefixes:      []string{"boot:"},
		groups:        []string{"ops", "x:root"},
		organizations: []string{"kubeadm:cluster-admins"},
		qualify:       r.IntN(3) == 0,
		remote:        r.IntN(2) == 0,
		accounts:      r.IntN(8) == 0,
		extras:        some(r, 2, hygieneKeys[3:]...),
		extra:         map[string][]string{},
	}
	if r.IntN(3) == 0 && !m.accounts {
		m.usernamePrefix, m.groupsPrefix = pick(r, "", "oidc:", "x:", "system:", "kubeadm:", "boot"),
			pick(r, "", "oidc:", "x:", "system:", "tenant:", "kubeadm:")
	}
	name := func() string {
		if r.IntN(24) == 0 {
			return pick(r, hygieneBad...)
		}
		if r.IntN(2) == 0 {
			return "alice"
		}
		return pick(r, hygieneWords...)
	}
	if m.name = name(); r.IntN(24) == 0 {
		m.name = ""
	}
	for range r.IntN(3) {
		m.inGroups = append(m.inGroups, name())
	}
	if m.accounts && r.IntN(3) > 0 {
		m.name, m.inGroups = "system:serviceaccount:ns:n",
			[]string{"system:serviceaccounts", "system:serviceaccounts:" + pick(r, "ns", "ns", "ns", "other")}
	}
	if r.IntN(16) > 0 {
		m.extra["kubetenant.dev/tenant"] = []string{pick(r, modelTenants...)}
	}
	for range r.IntN(3) {
		m.extra[pick(r, hygieneKeys...)] = some(r, 2, "a", "system", "all", "", "x")
	}
	return m
}

// TestIdentityModel checks random identities and configurations of a source. The result of the
// chain must equal the result of the model.
func TestIdentityModel(t *testing.T) {
	t.Parallel()
	left := 0
	const identities = 100_000
	for seed := range uint64(identities) {
		m := makeIdentity(rand.New(rand.NewPCG(seed, 0)))
		tenants, err := tenant.ParseSet(m.tenants)
		if err != nil {
			t.Fatal(err)
		}
		h := authn.IdentityRules{
			Source:          "src",
			Tenants:         tenants,
			UsernamePrefix:  m.usernamePrefix,
			GroupsPrefix:    m.groupsPrefix,
			QualifyNames:    m.qualify,
			Remote:          m.remote,
			Extras:          m.extras,
			ServiceAccounts: m.accounts,
			Reserved: &tenant.SystemNames{
				Users:         m.users,
				UserPrefixes:  m.prefixes,
				Groups:        m.groups,
				Organizations: m.organizations,
			},
		}
		given := &user.DefaultInfo{Name: m.name, Groups: slices.Clone(m.inGroups), Extra: m.extra}
		response, ok, err := authn.New(authn.Chain{Sources: []authn.Source{{Rules: h, Request: identity(given)}}}).
			AuthenticateRequest(&http.Request{})
		var got, want *user.DefaultInfo
		if want = m.clean(); ok && err == nil {
			got = response.User.(*user.DefaultInfo)
			left++
		}
		if difference := cmp.Diff(want, got); difference != "" {
			t.Fatalf("identity %d (-want +got): %s%+v: %v", seed, difference, *m, err)
		}
	}
	if t.Logf("%d of %d identities were accepted", left, identities); left < identities/10 {
		t.Error("too few identities are accepted for a meaningful comparison")
	}
}
