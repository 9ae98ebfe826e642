// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// memoryLimit is the memory limit of the service in the chart, in bytes.
const memoryLimit = 1 << 30

// The tests of this file use all processors of the machine, so they do not run in parallel.

// TestWebhookMemory checks that concurrent reviews of very large objects, whose content uses much
// memory when it is decoded, do not exceed the service's memory limit. Meanwhile, requests of
// another tenant must succeed. One kind of object is built in. The other kind is a custom resource
// whose content the service decodes completely.
func TestWebhookMemory(t *testing.T) {
	s := startServer(t, map[string]string{
		"tokens.csv":   "",
		"tenancy.yaml": groupsConfig + "admission: { binding: { kinds: [ { group: argoproj.io, kind: Application } ] } }\n",
	}, "--webhook")
	f := &faults{server: s, admin: s.client(t, "admin"), acme: s.client(t, "acme")}
	f.prepare(t)
	r := stopReplica(t, f, 1)
	held := holdMemory(t, r)
	globex := s.client(t, "globex")
	waittest.Until(t, func() error {
		_, err := globex.CoreV1().ConfigMaps("globex--web").List(t.Context(), metav1.ListOptions{})
		return err
	})
	var maps strings.Builder
	for maps.Len() < 2_900_000 {
		maps.WriteString(`{"a":1},`)
	}
	content := "[" + strings.TrimSuffix(maps.String(), ",") + "]"
	service := f.serviceClient(t) // call the service directly, because kube-apiserver would use most of the time
	for name, c := range map[string]struct{ kind, resource, object string }{
		"ControllerRevision": {
			`"group":"apps","version":"v1"`,
			"controllerrevisions",
			`{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"x","namespace":"acme--web"},"revision":1,` +
				`"data":{"d":` + content + `}}`,
		},
		"Application": {
			`"group":"argoproj.io","version":"v1alpha1"`,
			"applications",
			`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"x","namespace":"acme--web"},` +
				`"spec":{"d":` + content + `}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{` + c.kind +
				`,"kind":"` + name + `"},"resource":{` + c.kind + `,"resource":"` + c.resource + `"},` +
				`"name":"x","namespace":"acme--web","operation":"UPDATE","userInfo":{"username":"acme",` +
				`"groups":["tenant:acme","system:authenticated"]},"dryRun":true,"object":` + c.object + `,"oldObject":` + c.object +
				`}}`
			var wg sync.WaitGroup
			var answered, refused atomic.Int64
			for i := range 50 {
				wg.Go(func() {
					url := "https://" + r.front.Address() + []string{"/admit/mutate", "/admit/validate"}[i%2]
					request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
					if err != nil {
						t.Error(err)
						return
					}
					resp, err := service.Do(request)
					if err != nil {
						t.Error(err)
						return
					}
					defer func() { _ = resp.Body.Close() }()
					response, err := io.ReadAll(resp.Body)
					switch {
					case err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests:
						t.Errorf("%s %.200s %v", resp.Status, response, err)
					case resp.StatusCode == http.StatusOK:
						answered.Add(1)
					default:
						refused.Add(1)
					}
				})
			}
			done := make(chan struct{})
			go func() { wg.Wait(); close(done) }()
			served, denied := 0, 0
			for over := false; !over; {
				select {
				case <-done:
					over = true
				case <-time.After(100 * time.Millisecond):
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				if _, err := globex.CoreV1().ConfigMaps("globex--web").List(ctx, metav1.ListOptions{}); err != nil {
					denied++
				} else {
					served++
				}
				cancel()
			}
			peak := memoryKiB(t, r.process.Process.Pid, "VmHWM")
			t.Logf("%s: 50 of %.1f MB at once, %d answered, %d refused; at most %d MiB resident (cgroup limit: %t); "+
				"another tenant served %d times, denied %d times",
				name, float64(len(body))/1e6, answered.Load(), refused.Load(), peak>>10, held, served, denied)
			if peak<<10 > memoryLimit {
				t.Errorf("the service used %d MiB", peak>>10)
			}
			if answered.Load() == 0 || denied > 0 {
				t.Errorf("%d answered; another tenant was denied %d times", answered.Load(), denied)
			}
		})
	}
}

// holdMemory puts the process of the replica into a cgroup with memoryLimit, and reports whether
// this was possible. The test measures the memory in either case.
func holdMemory(t *testing.T, r *replicaUnderTest) bool {
	t.Helper()
	pid := r.process.Process.Pid
	for _, c := range []struct{ root, limit string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		dir := filepath.Join(c.root, fmt.Sprintf("kubetenant-test-%d", pid))
		if os.Mkdir(dir, 0o700) != nil {
			continue
		}
		t.Cleanup(func() {
			r.end()
			waittest.Until(t, func() error { return os.Remove(dir) })
		})
		if os.WriteFile(filepath.Join(dir, c.limit), []byte(strconv.Itoa(memoryLimit)), 0o600) == nil &&
			os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600) == nil {
			return true
		}
	}
	return false
}

// TestWebhookGrantFlood checks that another tenant can use its grant and its quota while
// requests from 900 connections use one grant.
func TestWebhookGrantFlood(t *testing.T) {
	s := startServer(t, nil, "--webhook")
	f := &faults{server: s, admin: s.client(t, "admin"), acme: s.client(t, "acme")}
	f.prepare(t)
	s.apply(t,
		`{apiVersion: kubetenant.dev/v1alpha1, kind: AccessGrant, metadata: {name: flooded, namespace: acme--web},
spec: {from: {tenant: evil, groups: ["tenant:evil"]}, to: [{apiGroups: [""], resources: [configmaps], verbs: [list]}]}}
---
{apiVersion: kubetenant.dev/v1alpha1, kind: AccessGrant, metadata: {name: quiet, namespace: acme--web},
  spec: {from: {tenant: globex, groups: ["tenant:globex"]},
  to: [{apiGroups: [""], resources: [configmaps], verbs: [list]}]}}
---
{apiVersion: kubetenant.dev/v1alpha1, kind: TenantQuota, metadata: {name: globex},
  spec: {tenant: globex, hard: {count/configmaps: "100000"}}}`)
	evil := s.impersonate(t, rest.ImpersonationConfig{
		UserName: "eve",
		Groups:   []string{"tenant:evil", "system:authenticated"},
		Extra:    map[string][]string{"kubetenant.dev/tenant": {"evil"}},
	})
	globex := s.client(t, "globex")
	use := func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps("acme--web").List(ctx, metav1.ListOptions{})
		return err
	}
	one := client(t, evil)
	waittest.Until(t, func() error {
		if err := use(t.Context(), one); err != nil {
			return err
		}
		return use(t.Context(), globex)
	})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var used, denied atomic.Int64
	for range 900 { // each client has its own connection
		own := rest.CopyConfig(evil)
		transport, err := rest.TransportFor(withoutCache(own))
		if err != nil {
			t.Fatal(err)
		}
		c, err := kubernetes.NewForConfigAndClient(own, &http.Client{Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				switch err := use(ctx, c); {
				case err == nil:
					used.Add(1)
				case apierrors.IsForbidden(err):
					denied.Add(1)
				}
			}
		})
	}
	fine, wrote := 0, 0
	enough := func() bool { return used.Load() >= 900 && fine >= 5 && wrote >= 5 }
	for begun := time.Now(); time.Since(begun) < 5*time.Second || !enough() && time.Since(begun) < waitLimit; {
		if err := use(t.Context(), globex); apierrors.IsForbidden(err) {
			t.Errorf("another tenant's use of its grant: %v", err)
		} else if err == nil {
			fine++
		}
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}
		if _, err := globex.CoreV1().ConfigMaps("globex--web").Create(t.Context(),
			c, metav1.CreateOptions{}); apierrors.IsForbidden(err) || apierrors.IsInternalError(err) {
			t.Errorf("a write that is charged to a quota: %v", err)
		} else if err == nil {
			wrote++
		}
	}
	stop()
	wg.Wait()
	t.Logf("the flooded grant was used %d times and denied %d times; another tenant's was used %d times, "+
		"and %d of its writes were charged",
		used.Load(), denied.Load(), fine, wrote)
	if !enough() {
		t.Errorf("used %d, other %d, written %d", used.Load(), fine, wrote)
	}
}

// withoutCache changes a client configuration so that its transport is not shared.
func withoutCache(c *rest.Config) *rest.Config {
	c.Proxy = http.ProxyFromEnvironment // client-go does not cache a transport with a function
	return c
}
