// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tokencache_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kubetenant/kubetenant/authn/internal/tokencache"
)

func limits(entries int) tokencache.Limits {
	return tokencache.Limits{Entries: entries, Bytes: 1 << 20}
}

// TestKeysAreUnique checks that different tokens and audiences have different keys, even if their
// concatenations are equal.
func TestKeysAreUnique(t *testing.T) {
	c := tokencache.New[int](limits(1), time.Now)
	seen := map[tokencache.Key]string{}
	for name, q := range map[string]struct {
		token     string
		audiences []string
	}{
		"a token without audiences":                           {"ab", nil},
		"a token and an audience with the same concatenation": {"a", []string{"b"}},
		"no token and one audience":                           {"", []string{"ab"}},
		"no token and two audiences":                          {"", []string{"a", "b"}},
		"an empty audience first":                             {"a", []string{"", "b"}},
		"an empty audience last":                              {"a", []string{"b", ""}},
		"the token and the audience swapped":                  {"b", []string{"a"}},
		"a token that ends with a zero byte":                  {"ab\x00", nil},
		"no token and no audiences":                           {"", nil},
		"no token and an empty audience":                      {"", []string{""}},
		"a token that begins like an encoded length":          {"\x00\x00\x00\x00\x00\x00\x00\x01a", nil},
	} {
		t.Run(name, func(t *testing.T) {
			key := c.Key(q.token, q.audiences)
			if other, taken := seen[key]; taken {
				t.Errorf("the key is also the key of %s", other)
			}
			seen[key] = name
			if key != c.Key(q.token, q.audiences) {
				t.Error("two calls return different keys")
			}
		})
	}
	if other := tokencache.New[int](limits(1), time.Now); other.Key("ab", nil) == c.Key("ab", nil) {
		t.Error("two caches return the same key: the hash has no secret")
	}
}

func TestEntriesExpire(t *testing.T) {
	now := time.Unix(1000, 0)
	c := tokencache.New[string](limits(10), func() time.Time { return now })
	key := c.Key("t", nil)
	c.Set(key, "v", 1, now.Add(time.Second))
	if v, found := c.Get(key); !found || v != "v" {
		t.Errorf("Get() = %q, %v", v, found)
	}
	now = now.Add(time.Second)
	if v, found := c.Get(key); found {
		t.Errorf("at the expiry time, Get() = %q", v)
	}
	c.Set(key, "v", 1, now)
	if v, found := c.Get(key); found {
		t.Errorf("after Set without time left, Get() = %q", v)
	}
	c.Set(key, "v", 1, now.Add(time.Hour))
	c.Remove(key)
	if v, found := c.Get(key); found {
		t.Errorf("after Remove, Get() = %q", v)
	}
}

func TestSizeIsBounded(t *testing.T) {
	c := tokencache.New[int](limits(100), time.Now)
	for i := range 1000 {
		c.Set(c.Key(fmt.Sprint(i), nil), i, 8, time.Now().Add(time.Hour))
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

// TestBytesAreBounded checks that large values evict other values. Expired values are removed
// first, and recently used values remain.
func TestBytesAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	c := tokencache.New[int](tokencache.Limits{Entries: 1000, Bytes: 10_000}, func() time.Time { return now })
	key := func(i int) tokencache.Key { return c.Key(fmt.Sprint(i), nil) }
	held := func() (all []int) {
		for i := range 100 {
			if _, found := c.Get(key(i)); found {
				all = append(all, i)
			}
		}
		return all
	}
	c.Set(key(0), 0, 1000, now.Add(time.Hour))
	for i := 1; i < 50; i++ {
		c.Get(key(0))
		c.Set(key(i), i, 3000, now.Add(time.Minute))
	}
	if got := held(); !slices.Equal(got, []int{0, 48, 49}) {
		t.Errorf("held %v, want the recently used value and the last two", got)
	}
	c.Set(key(50), 50, 20_000, now.Add(time.Hour))
	if got := held(); !slices.Equal(got, []int{0, 48, 49}) {
		t.Errorf("after a value that is larger than the cache: %v", got)
	}
	now = now.Add(time.Minute)
	c.Set(key(51), 51, 8000, now.Add(time.Hour)) // the two expired values make room
	if got := held(); !slices.Equal(got, []int{0, 51}) {
		t.Errorf("after two values have expired: %v", got)
	}
	for i := range 100 {
		c.Remove(key(i))
	}
	c.Set(key(1), 1, 9000, now.Add(time.Hour))
	if got := held(); !slices.Equal(got, []int{1}) {
		t.Errorf("after all were removed: %v", got)
	}
}
