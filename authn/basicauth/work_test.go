package basicauth

import (
	"errors"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/kubetenant/kubetenant/tenant"
)

// TestFailuresTakeTheSameWork counts the work of bcrypt: a failed login of a user with a cheap
// hash, of one with a plain password and of nobody take that of the file's dearest hash.
func TestFailuresTakeTheSameWork(t *testing.T) {
	file := ""
	for name, cost := range map[string]int{"cheap": 4, "middle": 6, "dear": 9} {
		h, err := bcrypt.GenerateFromPassword([]byte("right"), cost)
		if err != nil {
			t.Fatal(err)
		}
		file += string(h) + "," + name + ",1,,a\n"
	}
	table, err := parse([]byte(file+"right,plain,2,,a\n"), Options{DefaultTenant: tenant.System(),
		Check: func(string, []string, tenant.ID) error { return nil }})
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
	slow := newTurns()
	for _, login := range []string{"dear", "middle", "cheap", "plain", "nobody", "cheap@a", "cheap@b"} {
		work = 0
		if _, err := table.verify(t.Context(), login, "wrong", slow); !errors.Is(err, ErrRefused) {
			t.Errorf("login of %s = %v", login, err)
		}
		if work != 1<<9 {
			t.Errorf("a failed login of %s takes work %d, want %d", login, work, 1<<9)
		}
	}
	for _, login := range []string{"dear", "cheap"} {
		for try, want := range []bool{true, false} {
			work = 0
			if _, err := table.verify(t.Context(), login, "right", slow); err != nil {
				t.Errorf("login of %s = %v", login, err)
			}
			if (work > 0) != want {
				t.Errorf("login %d of %s takes work %d", try+1, login, work)
			}
		}
	}
}
