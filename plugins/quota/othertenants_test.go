// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kubetenant/kubetenant/plugins/quota"
	"github.com/kubetenant/kubetenant/tenant"
)

// TestOtherTenantsGetNoDetails checks that the error for a caller of another tenant does not
// contain details of the quota. Callers of the tenant that owns the namespace and of the system
// tenant get the details.
func TestOtherTenantsGetNoDetails(t *testing.T) {
	subject := func(_ context.Context, u user.Info) (tenant.ID, error) {
		if u.GetName() == "away" {
			id, _ := tenant.Parse("a")
			return id, errUnavailable
		}
		return tenant.Of(u)
	}
	by := func(name, id string) user.Info {
		return &user.DefaultInfo{Name: name, Extra: map[string][]string{tenant.ExtraKey: {id}}}
	}
	one, full := amounts{"requests.cpu": "1"}, amounts{"requests.cpu": "0.5"}
	for name, c := range map[string]struct {
		ledger *ledger
		is     write
		detail string // part of the error for callers of the owning tenant
		later  bool
	}{
		"exceeded": {&ledger{states: []*quota.State{limited("secret", one, full)}}, write{}, "exceeded quota: secret", false},
		"not requested": {
			&ledger{states: []*quota.State{limited("secret", amounts{"limits.cpu": "1"}, amounts{"limits.cpu": "0"})}},
			write{},
			"failed quota: secret: must specify limits.cpu", false,
		},
		"negative": {
			&ledger{states: []*quota.State{limited("secret", amounts{"requests.memory": "1", "requests.cpu": "9"},
				amounts{"requests.memory": "0", "requests.cpu": "0"})}},
			write{obj: podOf(container(amounts{"cpu": "1", "memory": "-1"}, nil))},
			"quota usage is negative", false,
		},
		"read error":    {&ledger{statesErr: errors.New("secret")}, write{}, "could not be read", true},
		"unknown usage": {&ledger{statesErr: quota.ErrUnknown}, write{}, "not known yet", true},
		"usage not counted": {
			&ledger{states: []*quota.State{limited("secret", one, nil)}}, write{}, "secret, resources: requests.cpu", true,
		},
		"charge error": {
			&ledger{
				states: []*quota.State{limited("secret", one, amounts{"requests.cpu": "0"})},
				charge: func(int) error { return errors.New("secret") },
			},
			write{},
			"could not be charged", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, u := range []user.Info{
				by("alice", "a"), by("root", "system"), by("bob", "b"), by("away", "a"), &user.DefaultInfo{Name: "nobody"},
			} {
				synctest.Test(t, func(t *testing.T) {
					w := c.is.attributes()
					a := admission.NewAttributesRecord(w.GetObject(), nil, w.GetKind(), w.GetNamespace(), "p", w.GetResource(), "",
						admission.Create, nil, false, u)
					l := *c.ledger
					err := newPlugin(&l, func(o *quota.Options) { o.Subject = subject }).Validate(t.Context(), a, nil)
					got := fmt.Sprint(err)
					if apierrors.IsTooManyRequests(err) != c.later || apierrors.IsForbidden(err) == c.later {
						t.Errorf("%s, %s: %s", name, u.GetName(), got)
					}
					isGuest := u.GetName() != "alice" && u.GetName() != "root"
					if !isGuest && !strings.Contains(got, c.detail) {
						t.Errorf("%s, %s: %s, want %s", name, u.GetName(), got, c.detail)
					}
					const told = "the quota of the tenant that owns the namespace "
					if isGuest && (!strings.Contains(got, told) || strings.Contains(got, "secret") ||
						strings.Contains(got, "cpu") || strings.Contains(got, c.detail)) {
						t.Errorf("%s, %s: %s", name, u.GetName(), got)
					}
				})
			}
		})
	}
}
