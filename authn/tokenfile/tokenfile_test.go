// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package tokenfile_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"

	ours "github.com/kubetenant/kubetenant/authn/tokenfile"
	"github.com/kubetenant/kubetenant/tenant"
)

func options() ours.Options {
	return ours.Options{DefaultTenant: tenant.System(), Check: func(string, []string, tenant.ID) error { return nil }}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.csv")
	write(t, path, "old,alice,1,,a\n")
	reported := make(chan error, 10)
	o := options()
	o.Report = func(_ string, err error) { reported <- err }
	a, err := ours.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	go a.Run(t.Context())
	known := func(token string) bool {
		_, ok, err := a.AuthenticateToken(t.Context(), token)
		if err != nil {
			t.Errorf("AuthenticateToken() = %v", err)
		}
		return ok
	}
	write(t, path, "new,alice,1,,a\n")
	if err := <-reported; err != nil || known("old") || !known("new") {
		t.Errorf("after a good version: %v, old %v, new %v", err, known("old"), known("new"))
	}
	write(t, path, "newer,alice\n")
	if err := <-reported; err == nil || !known("new") || known("newer") {
		t.Errorf("after a bad version: %v, new %v", err, known("new"))
	}
}

// TestResponsesAreIndependent checks that changes of the audiences or groups of one result do not
// affect later results.
func TestResponsesAreIndependent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.csv")
	write(t, path, "tok,alice,1,\"g,h\",,a\n")
	a, err := ours.Open(t.Context(), path, options())
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := a.AuthenticateToken(t.Context(), "tok")
	first.Audiences = []string{"other"}
	_ = append(first.User.GetGroups(), "system:masters")
	second, _, _ := a.AuthenticateToken(t.Context(), "tok")
	if id, err := tenant.Of(second.User); id.String() != "a" || err != nil || len(second.User.GetGroups()) != 2 ||
		second.Audiences != nil {
		t.Errorf("the second response is %+v", second.User)
	}
}

// TestTokensAreNotRetained checks that the tokens of a loaded file are not in reachable memory.
func TestTokensAreNotRetained(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.csv")
	var file strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&file, "canary-%04d-%s,user%d,uid%d,\"g1,g%d\",,a\n", i, strings.Repeat("x", 1000), i, i, i)
	}
	write(t, path, file.String())
	size := file.Len()
	file.Reset()
	before := heap()
	a, err := ours.Open(t.Context(), path, options())
	if err != nil {
		t.Fatal(err)
	}
	if grown := heap() - before; grown > int64(size)/2 {
		t.Errorf("after loading %d bytes of tokens, %d bytes remain in use", size, grown)
	}
	runtime.KeepAlive(a)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func FuzzOpen(f *testing.F) {
	for _, s := range []string{"t,u,1\n", "t,u,1,g,,a\n", "t,u,1\nt,u,2\n", ",u,1\n", "\"t\nt\",u,1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "tokens.csv")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := ours.Open(t.Context(), path, options())
		if (a == nil) == (err == nil) {
			t.Fatalf("Open() = %v, %v", a, err)
		}
		if err != nil {
			return
		}
		for token := range bytes.SplitSeq(data, []byte{','}) {
			resp, ok, err := a.AuthenticateToken(t.Context(), string(token))
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				if id, err := tenant.Of(resp.User); err != nil || id.IsZero() || resp.User.GetName() == "" {
					t.Fatalf("an identity without a tenant or a name: %+v", resp.User)
				}
			}
		}
	})
}

// content returns a realistic file with n tokens.
func content(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%032x,user-%d,uid-%d,\"dev,team-%d\",,tenant-%d\n", i*7919, i, i, i%100, i%1000)
	}
	return b.String()
}

// BenchmarkLoad measures the loading of a million tokens. held-MB is the memory that remains in
// use.
func BenchmarkLoad(b *testing.B) {
	const n = 1_000_000
	path := filepath.Join(b.TempDir(), "tokens.csv")
	write(b, path, content(n))
	for name, load := range map[string]func() (any, error){
		"upstream":   func() (any, error) { return tokenfile.NewCSV(path) },
		"kubetenant": func() (any, error) { return ours.Open(context.Background(), path, options()) },
	} {
		b.Run(name, func(b *testing.B) {
			before := heap()
			var held any
			for b.Loop() {
				var err error
				if held, err = load(); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(heap()-before)/1e6, "held-MB")
			runtime.KeepAlive(held)
		})
	}
}

// BenchmarkLookup measures the lookup of one of many tokens.
func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000, 1_000_000} {
		path := filepath.Join(b.TempDir(), "tokens.csv")
		write(b, path, content(n))
		upstream, err := tokenfile.NewCSV(path)
		if err != nil {
			b.Fatal(err)
		}
		own, err := ours.Open(b.Context(), path, options())
		if err != nil {
			b.Fatal(err)
		}
		tokens := make([]string, 1024)
		for i := range tokens {
			tokens[i] = fmt.Sprintf("%032x", (i*7907%n)*7919)
		}
		for name, a := range map[string]authenticator.Token{"upstream": upstream, "kubetenant": own} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, ok, _ := a.AuthenticateToken(b.Context(), tokens[i%len(tokens)]); !ok {
						b.Fatal("unknown token")
					}
				}
			})
		}
	}
}
