// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package basicauth

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"github.com/kubetenant/kubetenant/authn/internal/credfile"
)

// maxCost is the highest bcrypt cost that a file may use. A login of cost 16 takes seconds, and
// each further step doubles the time.
const maxCost = 16

// table has the content of one version of the password file.
type table struct {
	logins map[string]*entry // keyed by login name
	// cost is the highest bcrypt cost in the file, or 0 if the file has no hashes. Each failed
	// login takes the work of one comparison with this cost.
	cost   int
	dummy  map[int][]byte // a dummy hash for each cost from bcrypt.MinCost to cost
	recent *recentLogins
	count  credfile.Count
	// compare is bcrypt's comparison. Its work doubles with each step of the cost.
	compare func(hash, password []byte) error
}

type entry struct {
	name, uid  string
	membership *credfile.Membership
	plainSum   [32]byte // the keyed hash of a plain-text password
	hash       []byte   // a bcrypt hash, or nil for a plain-text password
	cost       int
}

// load parses a file and logs the number of its records.
func load(ctx context.Context, path string, data []byte, o Options) (*table, error) {
	t, err := parse(data, o)
	if err != nil {
		return nil, err
	}
	t.count.Log(ctx, path)
	return t, nil
}

func parse(data []byte, o Options) (*table, error) {
	t := &table{logins: map[string]*entry{}, recent: newRecentLogins(), compare: bcrypt.CompareHashAndPassword}
	byName := map[string][]*entry{}
	rules := credfile.Rules{
		Default:     o.DefaultTenant,
		Secrets:     credfile.TextOrBcrypt,
		Check:       o.Check,
		EmptySecret: func(int) error { return errors.New("empty password") },
	}
	var err error
	t.count, err = credfile.Read(data, rules, func(r credfile.Record) error {
		e := &entry{name: strings.Clone(r.Name), uid: strings.Clone(r.UID), membership: r.Membership}
		if strings.Contains(e.name, ":") {
			err := errors.New("the user name must not contain a colon (RFC 7617, section 2)")
			return credfile.UserError(err)
		}
		if err := e.setPassword(r.Secret, t.recent); err != nil {
			return err
		}
		login := e.name + "@" + e.membership.Tenant.String()
		if _, known := t.logins[login]; known {
			return credfile.UserError(errors.New("an earlier line has the same user and tenant"))
		}
		t.logins[login] = e
		t.cost = max(t.cost, e.cost)
		byName[e.name] = append(byName[e.name], e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for name, entries := range byName {
		if _, taken := t.logins[name]; taken {
			return nil, fmt.Errorf("the user name %q is the same as the login name of another user", name)
		}
		if len(entries) == 1 {
			t.logins[name] = entries[0]
		}
	}
	return t, t.makeDummies()
}

// CheckPassword returns an error if a password file must not contain the text as a password, for
// example an unsupported hash. The error contains no part of the text.
func CheckPassword(text string) error {
	if err := credfile.CheckSecret(text, credfile.TextOrBcrypt); err != nil {
		return err
	}
	return (&entry{}).setPassword(text, newRecentLogins())
}

// setPassword stores a bcrypt hash unchanged. It stores only a keyed hash of a plain-text password.
func (e *entry) setPassword(text string, keyed *recentLogins) error {
	if !strings.HasPrefix(text, "$2") {
		e.plainSum = keyed.sum("", text)
		return nil
	}
	cost, err := bcrypt.Cost([]byte(text))
	if err != nil {
		return errors.New("begins with $2 but is not a valid bcrypt hash")
	}
	if cost > maxCost {
		return fmt.Errorf("the bcrypt cost must be at most %d", maxCost)
	}
	e.hash = []byte(text)
	e.cost = cost
	return nil
}

// makeDummies creates a dummy hash for each bcrypt cost. [table.equalizeCost] compares passwords
// with these hashes, so that all failed logins take the same work.
func (t *table) makeDummies() error {
	t.dummy = map[int][]byte{}
	if t.cost == 0 {
		return nil
	}
	// Only the cost of a dummy matters, not its salt and sum. It is fast to create one hash with
	// the lowest cost and to replace the cost in its text.
	hash, err := bcrypt.GenerateFromPassword([]byte("nobody"), bcrypt.MinCost)
	if err != nil {
		return err
	}
	for cost := bcrypt.MinCost; cost <= t.cost; cost++ {
		t.dummy[cost] = fmt.Appendf(nil, "$2a$%02d%s", cost, hash[6:])
	}
	return nil
}
