// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubetenant/kubetenant/cmd/kube-apiserver/local"
	"github.com/kubetenant/kubetenant/test/link"
	"github.com/kubetenant/kubetenant/test/localserver"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// replicaUnderTest is a replica of the service whose connections go through links. A test can cut
// these links.
type replicaUnderTest struct {
	dir            string
	process        *exec.Cmd
	args           []string
	logs           *os.File
	metricsAddress string     // address of metrics and health checks
	front          *link.Link // from kube-apiserver to the replica
	back           *link.Link // from the replica to kube-apiserver
}

// outage is a fault of one replica.
type outage struct {
	name string
	// begin returns the function that ends the outage.
	begin func(t *testing.T, r *replicaUnderTest) (end func())
	// late reports whether the outage has no effect until the replica's state is too old.
	late bool
}

func outages() []outage {
	return []outage{
		{"killed", func(t *testing.T, r *replicaUnderTest) func() {
			r.kill(t)
			return func() { r.start(t) }
		}, false},
		{"frozen", func(t *testing.T, r *replicaUnderTest) func() {
			r.signal(t, syscall.SIGSTOP)
			return func() { r.signal(t, syscall.SIGCONT) }
		}, false},
		{"cut off from kube-apiserver, reset", cut(func(r *replicaUnderTest) *link.Link { return r.back }, link.Reset), true},
		{
			"cut off from kube-apiserver, silent",
			cut(func(r *replicaUnderTest) *link.Link { return r.back }, link.Silent),
			true,
		},
		{"cut off from its callers, reset", cut(func(r *replicaUnderTest) *link.Link { return r.front }, link.Reset), false},
		{
			"cut off from its callers, silent", cut(func(r *replicaUnderTest) *link.Link { return r.front }, link.Silent), false,
		},
		{"serving certificate expired", func(t *testing.T, r *replicaUnderTest) func() {
			return r.otherCertificate(t, nil, -time.Minute)
		}, false},
		{"serving certificate of another authority", func(t *testing.T, r *replicaUnderTest) func() {
			_, _, other := servingCertificate(t, "another authority", nil, time.Hour)
			return r.otherCertificate(t, other, time.Hour)
		}, false},
		{"client certificate refused", func(t *testing.T, r *replicaUnderTest) func() {
			other, _, _ := servingCertificate(t, "another authority", nil, time.Hour)
			return r.replace(t, "clients.crt", other)
		}, false},
		{"configuration garbage", func(t *testing.T, r *replicaUnderTest) func() {
			return r.replace(t, "tenancy.yaml", []byte("\x00garbage"))
		}, false},
		{"disk of the log full", func(t *testing.T, r *replicaUnderTest) func() {
			r.restart(t, "/dev/full")
			return func() { r.restart(t, "") }
		}, false},
	}
}

func cut(linkOf func(*replicaUnderTest) *link.Link, mode link.Mode) func(*testing.T, *replicaUnderTest) func() {
	return func(_ *testing.T, r *replicaUnderTest) func() {
		linkOf(r).Set(mode)
		return func() { linkOf(r).Set(link.Pass) }
	}
}

// servedAgain is the longest time for which tenants' requests may be denied during an outage of one
// of two replicas. The documented time is ten seconds, but test machines may be busy.
const servedAgain = 15 * time.Second

// minOutage is the time after which the test assumes that requests are denied as long as the outage
// of the only replica lasts.
const minOutage = 7 * time.Second

// TestWebhookOutages causes each outage of a replica, with one and with two replicas, while two
// tenants send requests. With two replicas, it checks that requests are denied for at most
// servedAgain during the outage. It also checks this limit after each outage. It logs the table of
// docs/webhook.md.
func TestWebhookOutages(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d", replicas), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, nil, "--webhook", "--replicas", fmt.Sprint(replicas))
			f := &faults{server: s, admin: s.client(t, "admin"), acme: s.client(t, "acme")}
			f.prepare(t)
			all := make([]*replicaUnderTest, replicas)
			for i := range all {
				all[i] = stopReplica(t, f, i+1)
				f.settled(t)
			}
			tenants := map[string]*kubernetes.Clientset{"acme": f.acme, "globex": s.client(t, "globex")}
			var table strings.Builder
			for _, o := range outages() {
				f.settled(t)
				waittest.Until(t, func() error { return callFirstReplica(t, tenants, all) }) // the replica may not be ready yet
				f.settled(t)
				end := o.begin(t, all[0])
				atLeast, atMost := servedFor, servedAgain
				switch {
				case o.late:
					atLeast = servedAgain
				case replicas == 1:
					atMost = minOutage
				}
				during, lasts := watchCallers(t, tenants, atLeast, atMost)
				end()
				after, _ := watchCallers(t, tenants, servedFor, servedAgain)
				said := seconds(during)
				if lasts {
					said = "as long as it lasts"
				}
				fmt.Fprintf(&table, "| %s | %s | %s |\n", o.name, said, seconds(after))
				if replicas == 2 && during > servedAgain {
					t.Errorf("%s: tenants were denied for %v", o.name, during)
				}
				if after > servedAgain {
					t.Errorf("%s: tenants were denied for %v after its end", o.name, after)
				}
			}
			t.Logf("%d replicas: denied for, and after its end for\n%s", replicas, table.String())
			if replicas == 1 {
				checkFreshness(t, f, all[0])
				return
			}
			leaderIsPaused(t, f)
			configurationDiffers(t, all)
		})
	}
}

// callFirstReplica makes kube-apiserver open connections to the first replica. It sends many
// concurrent requests while the links to the other replicas are cut, and again afterwards.
func callFirstReplica(t *testing.T, tenants map[string]*kubernetes.Clientset, all []*replicaUnderTest) error {
	t.Helper()
	for _, other := range all[1:] {
		other.front.Set(link.Reset)
	}
	burst(t, tenants)
	for _, other := range all[1:] {
		other.front.Set(link.Pass)
	}
	burst(t, tenants)
	if all[0].front.Open() == 0 {
		return errors.New("kube-apiserver does not call the first replica")
	}
	return nil
}

// leaderIsPaused checks that lists over all namespaces succeed after the leading controller has
// stopped and while another controller takes over.
func leaderIsPaused(t *testing.T, f *faults) {
	t.Helper()
	list := func() error {
		_, err := f.acme.CoreV1().Secrets("").List(t.Context(),
			metav1.ListOptions{LabelSelector: "kubetenant.dev/tenant=acme"})
		return err
	}
	waittest.Until(t, list)
	first := f.process(t, "kubetenant-controller")
	command := readFile(t, fmt.Sprintf("/proc/%d/cmdline", first.Pid))
	if err := first.Signal(syscall.SIGTERM); err != nil { // the controller releases its Lease
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimRight(command, "\x00"), "\x00")
	next := exec.CommandContext(t.Context(), binary(t, "kubetenant-webhook"), args[1:]...)
	logs := &strings.Builder{}
	next.Stdout, next.Stderr, next.SysProcAttr = logs, logs, localserver.EndsWithParent()
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = next.Process.Kill()
		_ = next.Wait()
	}()
	for range 50 {
		if err := list(); err != nil {
			t.Fatalf("a list over all namespaces: %v", err)
		}
		time.Sleep(callEvery)
	}
	lease, err := f.admin.CoordinationV1().Leases(serviceNamespace).Get(t.Context(),
		"kubetenant-controller", metav1.GetOptions{})
	if err != nil || lease.Spec.LeaseTransitions == nil || *lease.Spec.LeaseTransitions == 0 {
		t.Errorf("no other controller leads: %v, %v", lease, err)
	}
}

// configurationDiffers checks that the metrics of two replicas show a difference between their
// configurations.
func configurationDiffers(t *testing.T, all []*replicaUnderTest) {
	t.Helper()
	data := readFile(t, filepath.Join(all[0].dir, "tenancy.yaml"))
	defer all[0].replace(t, "tenancy.yaml",
		[]byte(strings.Replace(data, "authorization:\n", "authorization:\n  mode: Shadow\n", 1)))()
	waittest.Until(t, func() error {
		first, second := all[0].info(t), all[1].info(t)
		if !strings.Contains(first, `mode="Shadow"`) || !strings.Contains(second, `mode="Enforce"`) {
			return fmt.Errorf("the first replica reports %s, the second %s", first, second)
		}
		return nil
	})
}

// info returns the labels and the value of the metric kubetenant_config_info.
func (r *replicaUnderTest) info(t *testing.T) string {
	t.Helper()
	resp, err := http.Get("http://" + r.metricsAddress + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nkubetenant_config_info{")
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// burst sends many concurrent requests, so that kube-apiserver opens several connections to the
// service.
func burst(t *testing.T, tenants map[string]*kubernetes.Clientset) {
	t.Helper()
	var wg sync.WaitGroup
	for name, c := range tenants {
		for range 25 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, _ = c.CoreV1().ConfigMaps(name+"--web").List(ctx, metav1.ListOptions{}) // the result does not matter
			})
		}
	}
	wg.Wait()
}

const (
	callEvery = 200 * time.Millisecond
	servedFor = 3 * time.Second // time without a denial after which a tenant is served again
	slow      = 2 * time.Second // a slower response is a failure
)

// watchCallers sends requests of both tenants, for their own namespace and for the other
// tenant's namespace. It ends when the tenants are served again, but not before atLeast, or
// after atMost. It returns the time of the last failure of a request for a tenant's own
// namespace, and whether such requests still failed after atMost. The test fails if a request
// for the other tenant's namespace is allowed.
func watchCallers(
	t *testing.T, tenants map[string]*kubernetes.Clientset, atLeast, atMost time.Duration,
) (last time.Duration, lasts bool) {
	t.Helper()
	since := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, c := range tenants {
		wg.Go(func() {
			servedSince, denied := since, false // start of the time without a denial, and whether the last request was denied
			for i := 0; ; i++ {
				own, sentAt := i%4 != 3, time.Now()
				namespace := name + "--web"
				if !own {
					namespace = map[string]string{"acme": "globex--web", "globex": "acme--web"}[name]
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				_, err := c.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
				cancel()
				now := time.Now()
				if err == nil && !own {
					t.Errorf("%s can read another tenant's namespace", name)
				}
				over := now.Sub(since) > atMost
				served := err == nil && now.Sub(sentAt) < slow
				mu.Lock()
				if own {
					denied = !served
				}
				if own && denied {
					servedSince = now
					last = max(last, now.Sub(since))
				}
				lasts = lasts || over && denied
				mu.Unlock()
				if over || own && served && now.Sub(servedSince) > servedFor && now.Sub(since) > atLeast {
					return
				}
				time.Sleep(callEvery)
			}
		})
	}
	wg.Wait()
	return last, lasts
}

// settled waits until ten requests of acme have succeeded in succession.
func (f *faults) settled(t *testing.T) {
	t.Helper()
	served := 0
	waittest.Until(t, func() error {
		if _, err := f.acme.CoreV1().ConfigMaps("acme--web").List(t.Context(), metav1.ListOptions{}); err != nil {
			served = 0
			return err
		}
		if served++; served < 10 {
			return errors.New("fewer than ten requests have succeeded")
		}
		return nil
	})
}

// checkFreshness checks that a replica without a connection to kube-apiserver no longer allows
// requests based on its old state after 12 seconds.
func checkFreshness(t *testing.T, f *faults, r *replicaUnderTest) {
	t.Helper()
	ctx := t.Context()
	f.namespace(t, "moving", "acme")
	waittest.Until(t, func() error {
		_, err := f.acme.CoreV1().Secrets("moving").List(ctx, metav1.ListOptions{})
		return err
	})
	r.back.Set(link.Silent)
	cutAt := time.Now()
	if err := f.admin.CoreV1().Namespaces().Delete(ctx, "moving", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for time.Since(cutAt) < 30*time.Second {
		age := time.Since(cutAt)
		if _, err := f.acme.CoreV1().Secrets("moving").List(ctx, metav1.ListOptions{}); err == nil && age > 12*time.Second {
			t.Fatalf("allowed after %v based on outdated state", age)
		} else if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInternalError(err) {
			t.Fatal(err)
		} else if err != nil {
			t.Logf("without a working watch denied after %.1f s", age.Seconds())
			break
		}
		time.Sleep(callEvery)
	}
	r.back.Set(link.Pass)
}

// stopReplica kills one of the server's replicas, and replaces it with a replica whose links
// and files a test can change.
func stopReplica(t *testing.T, f *faults, n int) *replicaUnderTest {
	t.Helper()
	_, process := f.replica(t, n)
	line := readFile(t, fmt.Sprintf("/proc/%d/cmdline", process.Pid))
	r := &replicaUnderTest{dir: t.TempDir(), args: strings.Split(strings.TrimRight(line, "\x00"), "\x00")[1:]}
	kubeconfig, err := clientcmd.LoadFromFile(f.Kubeconfig("kubetenant-webhook"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range kubeconfig.Clusters {
		server := strings.TrimPrefix(c.Server, "https://")
		r.back = link.New(t, "127.0.0.1:0", server)
		c.Server = "https://" + r.back.Address()
		c.TLSServerName, _, _ = net.SplitHostPort(server)
	}
	if err := clientcmd.WriteToFile(*kubeconfig, filepath.Join(r.dir, "kubeconfig")); err != nil {
		t.Fatal(err)
	}
	behind, err := local.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	address := ""
	for i, arg := range r.args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "--metrics-listen":
			r.metricsAddress = value
		case "--kubeconfig":
			value = filepath.Join(r.dir, "kubeconfig")
		case "--listen":
			address, value = value, behind
		case "--config", "--tls-cert-file", "--tls-private-key-file", "--client-ca-file":
			base := map[string]string{
				"--config":               "tenancy.yaml",
				"--tls-cert-file":        "tls.crt",
				"--tls-private-key-file": "tls.key",
				"--client-ca-file":       "clients.crt",
			}[name]
			copyFile(t, value, filepath.Join(r.dir, base))
			if name == "--config" {
				copyFile(t, filepath.Join(filepath.Dir(value), "tokens.csv"), filepath.Join(r.dir, "tokens.csv"))
			}
			value = filepath.Join(r.dir, base)
		}
		if strings.Contains(arg, "=") {
			r.args[i] = name + "=" + value
		}
	}
	r.args = append([]string{binary(t, "kubetenant-webhook")}, r.args...)
	waittest.Until(t, func() error { // the port becomes free when the process has ended
		listener, err := net.Listen("tcp", address)
		if err == nil {
			err = listener.Close()
		}
		return err
	})
	r.front = link.New(t, address, behind)
	r.start(t)
	t.Cleanup(r.end)
	return r
}

// end kills the process, even if it is paused.
func (r *replicaUnderTest) end() {
	_ = r.process.Process.Signal(syscall.SIGCONT)
	_ = r.process.Process.Kill()
	_ = r.process.Wait()
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// start starts the process. If log is given and not empty, it is the path of the log file.
func (r *replicaUnderTest) start(t *testing.T, log ...string) {
	t.Helper()
	path := filepath.Join(r.dir, "log")
	if len(log) > 0 && log[0] != "" {
		path = log[0]
	}
	var err error
	if r.logs, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		t.Fatal(err)
	}
	r.process = exec.CommandContext(context.WithoutCancel(t.Context()), r.args[0], r.args[1:]...)
	r.process.Stdout, r.process.Stderr, r.process.SysProcAttr = r.logs, r.logs, localserver.EndsWithParent()
	if err := r.process.Start(); err != nil {
		t.Fatal(err)
	}
	_ = r.logs.Close() // the process has its own descriptor
}

func (r *replicaUnderTest) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := r.process.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (r *replicaUnderTest) kill(t *testing.T) {
	t.Helper()
	r.signal(t, syscall.SIGKILL)
	_ = r.process.Wait()
}

// restart stops the process with SIGTERM, as a rollout does. It starts the process with the given
// log file, and waits until it is ready.
func (r *replicaUnderTest) restart(t *testing.T, log string) {
	t.Helper()
	r.signal(t, syscall.SIGTERM)
	_ = r.process.Wait()
	r.start(t, log)
	waittest.Until(t, func() error {
		resp, err := http.Get("http://" + r.metricsAddress + "/readyz")
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		return errors.Join(err, resp.Body.Close())
	})
}

// replace replaces one of the replica's files, and returns a function that restores it.
func (r *replicaUnderTest) replace(t *testing.T, name string, data []byte) (restore func()) {
	t.Helper()
	path := filepath.Join(r.dir, name)
	before, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(path, before, 0o600); err != nil {
			t.Error(err)
		}
	}
}

// otherCertificate makes the replica serve another certificate. If ca is nil, the certificate is
// self-signed.
func (r *replicaUnderTest) otherCertificate(
	t *testing.T,
	ca *tls.Certificate,
	lifetime time.Duration,
) (restore func()) {
	t.Helper()
	certificate, key, _ := servingCertificate(t, "webhook", ca, lifetime)
	backs := []func(){r.replace(t, "tls.key", key), r.replace(t, "tls.crt", certificate)}
	return func() {
		for _, b := range slices.Backward(backs) {
			b()
		}
	}
}
