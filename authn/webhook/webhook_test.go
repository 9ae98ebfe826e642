// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubetenant/kubetenant/authn/authntest"
	"github.com/kubetenant/kubetenant/authn/webhook"
	"github.com/kubetenant/kubetenant/tenant"
)

func acme(t testing.TB) tenant.ID {
	t.Helper()
	id, err := tenant.Parse("acme")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func kubeconfig(t testing.TB, path, url string) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: url}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
}

// open returns an authenticator that calls handler.
func open(t testing.TB, handler http.HandlerFunc) *webhook.Authenticator {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	path := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig(t, path, server.URL)
	a, err := webhook.Open(path,
		webhook.Options{Source: "partner", Audiences: authenticator.Audiences{"one"}, Tenant: webhook.Value(acme(t))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// echo authenticates each token as the user with the same name, for the requested audiences.
func echo(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, "", http.StatusBadRequest)
		return
	}
	review.Status = authenticationv1.TokenReviewStatus{
		Authenticated: true,
		User:          authenticationv1.UserInfo{Username: review.Spec.Token},
		Audiences:     review.Spec.Audiences,
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func TestCallersGetTheirOwnIdentity(t *testing.T) {
	var asked atomic.Int64
	a := open(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		time.Sleep(5 * time.Millisecond)
		echo(w, r)
	})
	const callers, questions = 64, 400 // as many concurrent callers as a busy machine can serve in time
	var all sync.WaitGroup
	for first := range callers {
		all.Go(func() {
			for i := first; i < questions; i += callers {
				token := fmt.Sprint("token-", i/2)
				ctx := authenticator.WithAudiences(context.Background(), authenticator.Audiences{fmt.Sprint("audience-", i%2)})
				resp, ok, err := a.AuthenticateToken(ctx, token)
				if !ok || resp.User.GetName() != token || len(resp.Audiences) != 1 ||
					resp.Audiences[0] != fmt.Sprint("audience-", i%2) {
					t.Errorf("%s: %+v, %v", token, resp, err)
				}
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n != questions {
		t.Errorf("%d reviews of %d tokens and audiences", n, questions)
	}
}

// TestRequestsAreNotShared checks that different tokens or audiences never share a request.
func TestRequestsAreNotShared(t *testing.T) {
	begun, proceed := make(chan string, 2), make(chan struct{})
	a := open(t, func(w http.ResponseWriter, r *http.Request) {
		begun <- ""
		<-proceed
		echo(w, r)
	})
	var all sync.WaitGroup
	for token, audiences := range map[string]authenticator.Audiences{`a" "b`: nil, "a": {"b"}} {
		t.Run(token, func(t *testing.T) {
			all.Go(func() {
				ctx := context.Background()
				if audiences != nil {
					ctx = authenticator.WithAudiences(ctx, audiences)
				}
				resp, ok, err := a.AuthenticateToken(ctx, token)
				if !ok || resp.User.GetName() != token {
					t.Errorf("%+v, %v", resp, err)
				}
			})
		})
	}
	<-begun
	<-begun
	close(proceed)
	all.Wait()
}

func TestFaultyServices(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    error
	}{
		"500": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
			webhook.ErrUnavailable,
		},
		"closes": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, webhook.ErrUnavailable},
		"redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, webhook.ErrUnavailable},
		"garbage": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, webhook.ErrUnreadable,
		},
		"nothing":    {func(http.ResponseWriter, *http.Request) {}, webhook.ErrUnreadable},
		"a gigabyte": {func(w http.ResponseWriter, _ *http.Request) { authntest.Flood(w, "") }, webhook.ErrUnreadable},
		"an error message": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w,
				`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"error":"CANARY"}}`)
		}, webhook.ErrNotAuthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			_, ok, err := open(t, c.handler).AuthenticateToken(t.Context(), "CANARY")
			if ok || !errors.Is(err, c.want) || strings.Contains(err.Error(), "CANARY") {
				t.Errorf("= %v, %v; want %v", ok, err, c.want)
			}
		})
	}
}

// TestResponseMustBeTokenReview checks that a response of another kind or version authenticates no
// caller.
func TestResponseMustBeTokenReview(t *testing.T) {
	for kind, want := range map[string]bool{
		`"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview"`:        true,
		`"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenReview"`:   false,
		`"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"`:  false,
		`"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview"`: false,
		`"kind":"TokenReview"`: false,
	} {
		t.Run(kind, func(t *testing.T) {
			a := open(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{`+kind+`,"status":{"authenticated":true,"user":{"username":"alice"}}}`)
			})
			if _, ok, err := a.AuthenticateToken(t.Context(), "x"); ok != want {
				t.Errorf("%v, %v", ok, err)
			}
		})
	}
}

func TestHangingService(t *testing.T) {
	a := open(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, ok, err := a.AuthenticateToken(ctx, "x"); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("= %v, %v", ok, err)
	}
}

func TestReload(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig(t, path, "http://127.0.0.1:1")
	reported := make(chan error, 10)
	a, err := webhook.Open(path, webhook.Options{Tenant: webhook.Value(acme(t))}, func(_ string, err error) {
		reported <- err
	})
	if err != nil {
		t.Fatal(err)
	}
	go a.Run(t.Context())
	if _, ok, err := a.AuthenticateToken(t.Context(), "x"); ok || !errors.Is(err, webhook.ErrUnavailable) {
		t.Errorf("before: %v, %v", ok, err)
	}
	kubeconfig(t, path, server.URL)
	if err := <-reported; err != nil {
		t.Fatal(err)
	}
	if _, ok, err := a.AuthenticateToken(t.Context(), "x"); !ok {
		t.Errorf("after: %v, %v", ok, err)
	}
}

func TestCompile(t *testing.T) {
	compiler := authenticationcel.NewDefaultCompiler()
	u := &user.DefaultInfo{
		Name:   "acme/alice",
		UID:    "1",
		Groups: []string{"g"},
		Extra:  map[string][]string{"example.com/t": {"acme"}},
	}
	for text, want := range map[string]string{
		"user.username.split('/')[0]":    "acme",
		"user.extra['example.com/t'][0]": "acme",
		"user.groups[0]":                 "g",
		"user.uid == '1' ? 'one' : ''":   "one",
		"user.extra['missing'][0]":       "",
		"user.groups[7]":                 "",
		"'not a tenant'":                 "",
	} {
		t.Run(text, func(t *testing.T) {
			of, err := webhook.Compile(compiler, text)
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			if id, err := of(t.Context(), u); id.String() != want || (err == nil) != (want != "") {
				t.Errorf("%s = %q, %v; want %q", text, id, err, want)
			}
		})
	}
	for _, text := range []string{"", "user.", "1", "user.groups", "claims.sub", "user.nonsense"} {
		if of, err := webhook.Compile(compiler, text); err == nil {
			t.Errorf("Compile(%q) = %p", text, of)
		}
	}
}

// TestErrorsAndLogsContainNoSecrets checks that neither the error nor the log contains the token
// if the response contains it.
func TestErrorsAndLogsContainNoSecrets(t *testing.T) {
	log, end, err := authntest.CaptureLog(7)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	const canary = "CANARY"
	for name, answer := range map[string]string{
		"as a kind":    `{"kind":"CANARY","apiVersion":"v1"}`,
		"as a version": `{"kind":"TokenReview","apiVersion":"CANARY/v1"}`,
		"as an error":  `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"error":"CANARY"}}`,
		"as text":      canary,
		"as a status":  `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"CANARY","reason":"CANARY"}`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, code := range []int{200, 400, 401, 500} {
				a := open(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Warning", `299 - "CANARY"`)
					w.WriteHeader(code)
					_, _ = io.WriteString(w, answer)
				})
				if _, ok, err := a.AuthenticateToken(t.Context(), canary); ok || strings.Contains(err.Error(), canary) {
					t.Errorf("%s, %d: %v, %v", name, code, ok, err)
				}
			}
		})
	}
	if text := log.String(); strings.Contains(text, canary) || text == "" {
		t.Errorf("the log: %q", text)
	}
}

// TestInsecureServicesAreRejected checks that services that would get tokens in clear text or
// without verification are rejected.
func TestInsecureServicesAreRejected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	for _, cluster := range []clientcmdapi.Cluster{
		{Server: "http://partner.example.com"},
		{Server: "https://partner.example.com", InsecureSkipTLSVerify: true},
		{Server: ""},
	} {
		config := clientcmdapi.NewConfig()
		config.Clusters["c"] = &cluster
		config.AuthInfos["u"] = &clientcmdapi.AuthInfo{}
		config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
		config.CurrentContext = "x"
		if err := clientcmd.WriteToFile(*config, path); err != nil {
			t.Fatal(err)
		}
		if _, err := webhook.Open(path, webhook.Options{Tenant: webhook.Value(acme(t))}, nil); err == nil {
			t.Errorf("Open() of %q, insecure %v: accepted", cluster.Server, cluster.InsecureSkipTLSVerify)
		}
	}
}
