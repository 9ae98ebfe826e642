// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package basicauth

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/kubetenant/kubetenant/tenant"
)

// TestFailedLoginsTakeEqualWork checks that each failed login takes the bcrypt work of the
// highest cost in the file. This applies to a user with a hash of lower cost, a user with a
// plain-text password, and an unknown user.
func TestFailedLoginsTakeEqualWork(t *testing.T) {
	file := ""
	for name, cost := range map[string]int{"cheap": 4, "middle": 6, "dear": 9} {
		h, err := bcrypt.GenerateFromPassword([]byte("right"), cost)
		if err != nil {
			t.Fatal(err)
		}
		file += string(h) + "," + name + ",1,,a\n"
	}
	table, err := parse([]byte(file+"right,plain,2,,a\n"), Options{
		DefaultTenant: tenant.System(),
		Check:         func(string, []string, tenant.ID) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	work := 0
	table.compare = func(hash, password []byte) error {
		cost, err := bcrypt.Cost(hash)
		if err != nil {
			t.Fatal(err)
		}
		work += 1 << cost
		return bcrypt.CompareHashAndPassword(hash, password)
	}
	slow := newLoginLimiter()
	for _, login := range []string{"dear", "middle", "cheap", "plain", "nobody", "cheap@a", "cheap@b"} {
		work = 0
		if _, err := table.verify(t.Context(), "", login, "wrong", slow); !errors.Is(err, ErrRefused) {
			t.Errorf("login of %s = %v", login, err)
		}
		if work != 1<<9 {
			t.Errorf("a failed login of %s takes work %d, want %d", login, work, 1<<9)
		}
	}
	for _, login := range []string{"dear", "cheap"} {
		for try, want := range []bool{true, false} {
			work = 0
			if _, err := table.verify(t.Context(), "", login, "right", slow); err != nil {
				t.Errorf("login of %s = %v", login, err)
			}
			if (work > 0) != want {
				t.Errorf("login %d of %s takes work %d", try+1, login, work)
			}
		}
	}
}

// TestFloodAffectsOnlyItsAddress checks that a flood of logins from one address fills at most
// half of the login slots. Logins from other addresses are still admitted. All addresses in an
// IPv6 /64 network are treated as one address.
func TestFloodAffectsOnlyItsAddress(t *testing.T) {
	for name, c := range map[string]struct {
		flood func(i int) string
		other string
		ok    bool
	}{
		"IPv4":             {func(i int) string { return fmt.Sprintf("192.0.2.1:%d", 1000+i) }, "192.0.2.2:1000", true},
		"the same address": {func(i int) string { return fmt.Sprintf("192.0.2.1:%d", 1000+i) }, "192.0.2.1:9", false},
		"the address as IPv6": {
			func(i int) string { return fmt.Sprintf("192.0.2.1:%d", 1000+i) }, "[::ffff:192.0.2.1]:9", false,
		},
		"IPv6": {func(i int) string { return fmt.Sprintf("[2001:db8:0:1::%x]:1000", i) }, "[2001:db8:0:2::1]:1000", true},
		"the same site": {
			func(i int) string { return fmt.Sprintf("[2001:db8:0:1::%x]:1000", i) }, "[2001:db8:0:1::ffff]:1000", false,
		},
		"no address": {func(int) string { return "" }, "192.0.2.2:1000", true},
	} {
		t.Run(name, func(t *testing.T) {
			slow := newLoginLimiter()
			waiting := 0
			for i := range 200 {
				if slow.admit(clientOf(c.flood(i))) {
					waiting++
				}
			}
			if ok := slow.admit(clientOf(c.other)); ok != c.ok || waiting > (maxRunningLogins+maxWaitingLogins)/2 {
				t.Errorf("admitted: %t, admitted logins of the flood: %d", ok, waiting)
			}
			for range waiting {
				slow.leave(clientOf(c.flood(0)))
			}
		})
	}
}
