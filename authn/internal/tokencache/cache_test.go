package tokencache_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/authn/internal/tokencache"
)

// TestKeysAreApart: no token and audiences share a key with another's, however they are cut.
func TestKeysAreApart(t *testing.T) {
	c := tokencache.New[int](1, time.Now)
	seen := map[tokencache.Key]string{}
	for _, q := range []struct {
		token     string
		audiences []string
	}{
		{"ab", nil}, {"a", []string{"b"}}, {"", []string{"ab"}}, {"", []string{"a", "b"}}, {"a", []string{"", "b"}}, {"a", []string{"b", ""}},
		{"b", []string{"a"}}, {"ab\x00", nil}, {"", nil}, {"", []string{""}}, {"\x00\x00\x00\x00\x00\x00\x00\x01a", nil},
	} {
		key := c.Key(q.token, q.audiences)
		if other, taken := seen[key]; taken {
			t.Errorf("%q and %s share a key", q, other)
		}
		seen[key] = fmt.Sprintf("%q", q)
		if key != c.Key(q.token, q.audiences) {
			t.Errorf("%q has two keys", q)
		}
	}
	if other := tokencache.New[int](1, time.Now); other.Key("ab", nil) == c.Key("ab", nil) {
		t.Error("two caches hash alike: the hash has no secret")
	}
}

func TestNothingOutlivesItsTime(t *testing.T) {
	now := time.Unix(1000, 0)
	c := tokencache.New[string](10, func() time.Time { return now })
	key := c.Key("t", nil)
	c.Set(key, "v", now.Add(time.Second))
	if v, found := c.Get(key); !found || v != "v" {
		t.Errorf("Get() = %q, %v", v, found)
	}
	now = now.Add(time.Second)
	if v, found := c.Get(key); found {
		t.Errorf("at its end Get() = %q", v)
	}
	c.Set(key, "v", now)
	if v, found := c.Get(key); found {
		t.Errorf("Set with no time left, Get() = %q", v)
	}
	c.Set(key, "v", now.Add(time.Hour))
	c.Remove(key)
	if v, found := c.Get(key); found {
		t.Errorf("removed, Get() = %q", v)
	}
}

func TestSizeIsBounded(t *testing.T) {
	c := tokencache.New[int](100, time.Now)
	for i := range 1000 {
		c.Set(c.Key(fmt.Sprint(i), nil), i, time.Now().Add(time.Hour))
	}
	held := 0
	for i := range 1000 {
		if v, found := c.Get(c.Key(fmt.Sprint(i), nil)); found {
			held++
			if v != i {
				t.Fatalf("Get(%d) = %d", i, v)
			}
		}
	}
	if held != 100 {
		t.Errorf("%d entries held, want 100", held)
	}
}
