// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/kubetenant/kubetenant/test/waittest"
)

// quotaConfig is the part of the configuration in which the quota reservation of a write that is
// never stored expires after 8 seconds.
const quotaConfig = `admission:
  quota: { reservation: 8s }
`

const secretQuota = `
apiVersion: kubetenant.dev/v1alpha1
kind: TenantQuota
metadata: { name: limit }
spec: { tenant: acme, hard: { count/secrets: "100" } }
`

// TestQuotaIsExact checks that exactly 100 of 200 concurrent creates in two namespaces succeed if a
// TenantQuota allows 100 objects. It also checks that deletions free quota. If the server is killed
// during the creates, the limit must still apply, and reservations of objects that were not stored
// must be released.
func TestQuotaIsExact(t *testing.T) { testQuotaIsExact(t, certificatesConfig+quotaConfig) }

func TestWebhookQuotaIsExact(t *testing.T) {
	testQuotaIsExact(t, groupsConfig+quotaConfig, "--webhook", "--replicas=2")
}

func testQuotaIsExact(t *testing.T, tenancy string, args ...string) {
	t.Parallel()
	s := startServer(t, map[string]string{"tenancy.yaml": tenancy}, args...)
	s.prepare(t)
	s.namespace(t, "acme--db", "acme")
	s.apply(t,
		`{ apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: { name: all, namespace: acme--db }, `+
			`roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin }, `+
			`subjects: [ { apiGroup: rbac.authorization.k8s.io, kind: Group, name: "tenant:acme" } ] }`)
	s.apply(t, secretQuota)
	acme, admin := s.client(t, "acme"), s.client(t, "admin")
	waittest.Until(t, func() error {
		_, err := acme.CoreV1().Secrets("acme--db").Create(t.Context(), secretOf("probe"),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	if created, refused := createMany(t, acme, "a", 200, nil); created != 100 || refused != 100 {
		t.Errorf("%d created, %d over quota; want 100 and 100", created, refused)
	}
	if n := secrets(t, admin); n != 100 {
		t.Errorf("%d stored", n)
	}
	list, err := admin.CoreV1().Secrets("acme--web").List(t.Context(), metav1.ListOptions{Limit: 30})
	if err != nil || len(list.Items) != 30 {
		t.Fatal(err, len(list.Items))
	}
	for _, o := range list.Items {
		if err := acme.CoreV1().Secrets("acme--web").Delete(t.Context(), o.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	refill(t, acme, admin, "b")
	if err := acme.CoreV1().Secrets("acme--web").DeleteCollection(t.Context(),
		metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := acme.CoreV1().Secrets("acme--db").DeleteCollection(t.Context(),
		metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		_, err := acme.CoreV1().Secrets("acme--db").Create(t.Context(), secretOf("again"), metav1.CreateOptions{})
		return err
	})
	if len(args) == 0 { // TestWebhookFaults kills the webhook service instead
		killed(t, s, acme)
		s = newServer(t, s.Dir, args...)
		acme, admin = s.client(t, "acme"), s.client(t, "admin")
		if n := secrets(t, admin); n > 100 {
			t.Errorf("%d stored when the server was killed", n)
		}
	}
	refill(t, acme, admin, "c")
}

func secretOf(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// createMany creates n Secrets concurrently, half of them in each namespace. After each success, it
// calls after with the number of successes. It returns the numbers of created Secrets and of
// creates that exceeded the quota.
func createMany(
	t *testing.T,
	c kubernetes.Interface,
	prefix string,
	n int,
	after func(created int),
) (created, refused int) {
	t.Helper()
	var ok, exceeded atomic.Int64
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			namespace := []string{"acme--web", "acme--db"}[i%2]
			// On a busy machine, the server may not charge the quota in time. It then responds with
			// 429.
			err := retry.OnError(wait.Backoff{Duration: 100 * time.Millisecond, Steps: 10}, apierrors.IsTooManyRequests,
				func() error {
					_, err := c.CoreV1().Secrets(namespace).Create(t.Context(),
						secretOf(fmt.Sprintf("%s-%d", prefix, i)), metav1.CreateOptions{})
					return err
				})
			switch {
			case err == nil:
				if n := ok.Add(1); after != nil {
					after(int(n))
				}
			case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: limit"):
				exceeded.Add(1)
			case after == nil:
				t.Error(err)
			}
		})
	}
	all.Wait()
	return int(ok.Load()), int(exceeded.Load())
}

func secrets(t *testing.T, admin kubernetes.Interface) int {
	t.Helper()
	n := 0
	for _, namespace := range []string{"acme--web", "acme--db"} {
		list, err := admin.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n += len(list.Items)
	}
	return n
}

// refill creates Secrets until 100 are stored. It checks that further creates fail.
func refill(t *testing.T, acme, admin kubernetes.Interface, prefix string) {
	t.Helper()
	i, stored := 0, 0
	// The lease of a killed server expires after 15 seconds. The server's reservations remain until
	// they expire.
	for deadline := time.Now().Add(2 * time.Minute); stored != 100; time.Sleep(50 * time.Millisecond) {
		for range 20 {
			_, err := acme.CoreV1().Secrets("acme--db").Create(t.Context(),
				secretOf(fmt.Sprintf("%s-%d", prefix, i)), metav1.CreateOptions{})
			i++
			if err != nil && !strings.Contains(err.Error(), "exceeded quota") && time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
		if stored = secrets(t, admin); stored > 100 || time.Now().After(deadline) {
			t.Fatalf("%d stored, want 100", stored)
		}
	}
	if created, _ := createMany(t, acme, prefix+"-more", 20, nil); created != 0 {
		t.Errorf("%d Secrets were created although 100 exist", created)
	}
}

// killed kills the server during 200 concurrent creates, after at least 40 have succeeded.
func killed(t *testing.T, s *server, acme kubernetes.Interface) {
	t.Helper()
	var once sync.Once
	created, _ := createMany(t, acme, "k", 200, func(created int) {
		if created >= 40 {
			once.Do(func() {
				if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
			})
		}
	})
	if created < 40 || created > 100 {
		t.Error(errors.New("the server was not killed during the creates"), created)
	}
	_ = s.Stop() // the server has ended
}
