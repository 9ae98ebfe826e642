// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubetenant/kubetenant/internal/simulate/scenario"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
	"github.com/kubetenant/kubetenant/test/localserver"
	"github.com/kubetenant/kubetenant/test/waittest"
)

// waitLimit is the timeout of each wait.
const waitLimit = 3 * time.Minute

// controlPlane is a control plane that scenarios with the same flags share. The scenarios run one
// after the other, and the server reloads its configuration for each. A second server on the same
// etcd, upstream's kube-apiserver without tenancy, creates the objects of a scenario. These objects
// are deleted before the next scenario.
type controlPlane struct {
	dir          string
	server       *localserver.Server
	seeder       *exec.Cmd
	seederCaller *caller // sends requests to the seeder
	etcd         *clientv3.Client
	// baseKeys contains the etcd keys that exist without a scenario.
	baseKeys map[string]bool
	// deletedAt contains, for each resource, the etcd revision of the last deletion of an
	// object.
	deletedAt revisions
}

// revisions contains etcd revisions, keyed by resource.
type revisions map[schema.GroupResource]int64

func (r revisions) note(resource schema.GroupResource, at int64) { r[resource] = max(r[resource], at) }

// currentConfig returns the path of the configuration that a control plane in dir reads. The path
// contains a symbolic link to the folder of the current fixture.
func currentConfig(dir string) string { return filepath.Join(dir, "current", "scenario.yaml") }

// setCurrent makes a fixture the current fixture of dir.
func setCurrent(dir string, w *scenario.Fixture) error {
	link := filepath.Join(dir, "current")
	if err := os.Symlink(w.Dir, link+".new"); err != nil {
		return err
	}
	return os.Rename(link+".new", link)
}

// startControlPlane starts a control plane in dir. The caller must first call setCurrent for
// dir.
func startControlPlane(ctx context.Context, bin, dir string, args []string) (p *controlPlane, err error) {
	p = &controlPlane{dir: dir, deletedAt: revisions{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.server, err = localserver.Start(ctx, filepath.Join(bin, "kubetenant-local"), dir, args...); err != nil {
		return p, err
	}
	endpoint, err := etcdOf(dir)
	if err != nil {
		return p, err
	}
	if p.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: waitLimit}); err != nil {
		return p, err
	}
	if err := p.startSeeder(ctx, bin); err != nil {
		return p, err
	}
	p.baseKeys, err = p.keys(ctx)
	return p, err
}

// startSeeder starts upstream's server on the control plane's etcd, without admission webhooks and
// policies.
func (p *controlPlane) startSeeder(ctx context.Context, bin string) error {
	address, seeder, err := startSecond(filepath.Join(bin, "vanilla-kube-apiserver"), p.dir, "seeder.log",
		"--authorization-mode=Node,RBAC", "--disable-admission-plugins=MutatingAdmissionWebhook,"+
			"ValidatingAdmissionWebhook,MutatingAdmissionPolicy,ValidatingAdmissionPolicy")
	if err != nil {
		return err
	}
	p.seeder = seeder
	if p.seederCaller, err = newCaller("https://"+address, p.server.Kubeconfig("admin")); err != nil {
		return err
	}
	return poll(ctx, "the seeding server", func(ctx context.Context) error {
		if err := p.seederCaller.asAdmin(ctx, http.MethodGet, "/readyz", nil, nil); err != nil {
			return err
		}
		// This request fails if another server has the port.
		return p.seederCaller.asAdmin(ctx, http.MethodGet, "/api/v1/namespaces/kube-system", nil, nil)
	})
}

// permanentError is an error that a retry cannot resolve.
type permanentError struct{ error }

// poll calls f until f returns nil or a [permanentError], or until waitLimit has passed.
func poll(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for start := time.Now(); ; {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if errors.As(err, &permanentError{}) {
			return fmt.Errorf("%s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-time.After(waittest.Pause(start)):
		}
	}
}

// close stops the control plane.
func (p *controlPlane) close() error {
	var errs []error
	if p.etcd != nil {
		errs = append(errs, p.etcd.Close())
	}
	if p.seeder != nil { // the seeder stores all its state in etcd
		_ = p.seeder.Process.Kill()
		_ = p.seeder.Wait() // the error reports the kill
	}
	if p.server != nil {
		errs = append(errs, p.server.Stop())
	}
	return errors.Join(append(errs, p.races())...)
}

// logs returns the last lines of the log of each process of the control plane.
func (p *controlPlane) logs() string {
	out := ""
	names, _ := filepath.Glob(filepath.Join(p.dir, "*.log"))
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			text = []byte(err.Error())
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		out += filepath.Base(name) + ":\n" + strings.Join(lines[max(0, len(lines)-8):], "\n") + "\n"
	}
	return out
}

// races returns an error if a log contains a report of the race detector. Only binaries that are
// built with -race write such reports.
func (p *controlPlane) races() error {
	names, _ := filepath.Glob(filepath.Join(p.dir, "*.log"))
	for _, name := range names {
		if text, err := os.ReadFile(name); err != nil || bytes.Contains(text, []byte("WARNING: DATA RACE")) {
			return fmt.Errorf("%s: a data race: %w", name, err)
		}
	}
	return nil
}

// registry is the prefix of kube-apiserver's keys in etcd (the default of --etcd-prefix).
const registry = "/registry/"

// keys returns the etcd keys of all objects, except Events and Leases, which the servers write
// continuously.
func (p *controlPlane) keys(ctx context.Context) (map[string]bool, error) {
	got, err := p.etcd.Get(ctx, registry, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, kv := range got.Kvs {
		group, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), registry), "/")
		if !slices.Contains([]string{"events", "leases", "masterleases"}, group) {
			all[string(kv.Key)] = true
		}
	}
	return all, nil
}

// clear deletes the objects of the last scenario. A controller that has not observed the deletion
// may create an object again. Therefore, clear returns only after two successive checks have found
// no object.
func (p *controlPlane) clear(ctx context.Context) error {
	clean := 0
	return poll(ctx, "what the last scenario left", func(ctx context.Context) error {
		all, err := p.keys(ctx)
		if err != nil {
			return err
		}
		maps.DeleteFunc(all, func(key string, _ bool) bool { return p.baseKeys[key] })
		if len(all) == 0 {
			clean++
		} else {
			clean = 0
		}
		for _, key := range slices.SortedFunc(maps.Keys(all), lastDefinitions) {
			response, err := p.etcd.Delete(ctx, key)
			if err != nil {
				return err
			}
			if resource, ok := seededAt(key); ok {
				p.deletedAt.note(resource, response.Header.Revision)
			}
		}
		if clean < 2 {
			return fmt.Errorf("%d keys", len(all))
		}
		return nil
	})
}

// lastDefinitions compares keys. It sorts namespaces first, so that controllers do not create
// objects in them, and CustomResourceDefinitions last.
func lastDefinitions(a, b string) int {
	rank := func(key string) int {
		switch {
		case strings.HasPrefix(key, registry+"namespaces/"):
			return 0
		case strings.HasPrefix(key, registry+"apiextensions.k8s.io/customresourcedefinitions/"):
			return 2
		}
		return 1
	}
	return rank(a) - rank(b)
}

// seededAt returns the resource of a key, and reports whether the servers publish the resource
// version that their informers for this resource have observed.
func seededAt(key string) (schema.GroupResource, bool) {
	first, _, _ := strings.Cut(strings.TrimPrefix(key, registry), "/")
	switch first {
	case "namespaces", "secrets", "pods":
		return schema.GroupResource{Resource: first}, true
	case "clusterroles", "clusterrolebindings", "roles", "rolebindings":
		return schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: first}, true
	}
	return schema.GroupResource{}, false
}

// seed creates the objects of a scenario, and waits until the server under test has observed them.
func (p *controlPlane) seed(ctx context.Context, objects []runtime.RawExtension, server *caller) error {
	created := maps.Clone(p.deletedAt)
	for i := range objects {
		w, err := scenario.WriteOf(&scenario.Admit{Object: &objects[i]})
		if err != nil {
			return err
		}
		var object metav1.PartialObjectMetadata
		if err := poll(ctx, "seed "+w.GVK.Kind+" "+w.Name, func(ctx context.Context) error {
			a, err := p.seederCaller.send(ctx, http.MethodPost, collection(w), objects[i].Raw, nil, p.seederCaller.admin)
			if err != nil || a.code == http.StatusNotFound { // the server may not serve the custom resource yet
				return errors.Join(err, errors.New("not found"))
			}
			if a.code == http.StatusConflict && createdByServer(w) {
				_, err := p.seederCaller.send(ctx, http.MethodDelete, collection(w)+"/"+w.Name, nil, nil, p.seederCaller.admin)
				return errors.Join(err, errors.New("the server under test had created the object"))
			}
			if a.code == http.StatusConflict && isCopy(objects[i].Raw) { // the server under test has created the same copy
				if a, err = p.seederCaller.send(ctx, http.MethodGet, collection(w)+"/"+w.Name, nil, nil,
					p.seederCaller.admin); err != nil {
					return err
				}
			}
			if a.code >= 300 {
				return permanentError{fmt.Errorf("%d: %s", a.code, a.message())}
			}
			return json.Unmarshal(a.body, &object)
		}); err != nil {
			return err
		}
		revision, err := strconv.ParseInt(object.ResourceVersion, 10, 64)
		if err != nil {
			return err
		}
		created.note(w.GVR.GroupResource(), revision)
		if w.GVR.Resource == "customresourcedefinitions" {
			if err := awaitDefinition(ctx, objects[i].Raw, server); err != nil {
				return err
			}
		}
	}
	return awaitInformers(ctx, server, created)
}

// isCopy reports whether an object was copied by a Publication.
func isCopy(raw []byte) bool {
	var object metav1.PartialObjectMetadata
	return json.Unmarshal(raw, &object) == nil && object.Labels[tenant.PublicationLabel] != ""
}

// createdByServer reports whether the server under test may create the object itself. The
// server creates a tenant's default TenantQuota when it observes a namespace of the tenant. It
// also creates the ClusterRoles of the tenants' admins and callers.
func createdByServer(w scenario.Write) bool {
	switch w.GVK.Kind {
	case v1alpha1.KindTenantQuota:
		return true
	case "ClusterRole":
		return w.Name == v1alpha1.NamespacesRole || w.Name == v1alpha1.MemberRole
	}
	return false
}

// awaitDefinition waits until a server serves the custom resource of a CustomResourceDefinition.
func awaitDefinition(ctx context.Context, raw []byte, server *caller) error {
	var definition struct {
		Spec struct {
			Group    string
			Names    struct{ Plural string }
			Versions []struct{ Name string }
		}
	}
	if err := json.Unmarshal(raw, &definition); err != nil {
		return err
	}
	s := definition.Spec
	return poll(ctx, "the definition of "+s.Names.Plural, func(ctx context.Context) error {
		return server.asAdmin(ctx, http.MethodGet, "/apis/"+s.Group+"/"+s.Versions[0].Name+"/"+s.Names.Plural, nil, nil)
	})
}

// awaitInformers waits until the informers of a server have observed the given revisions, according
// to the server's metrics. It ignores a resource without an informer.
func awaitInformers(ctx context.Context, server *caller, want revisions) error {
	return poll(ctx, "the informers", func(ctx context.Context) error {
		text, err := server.metrics(ctx)
		if err != nil {
			return err
		}
		seen, err := informersOf(text)
		if err != nil {
			return err
		}
		for resource, revision := range want {
			if at, ok := seen[resource]; ok && at < revision {
				return fmt.Errorf("the informer of %s is at revision %d, want %d", resource, at, revision)
			}
		}
		return nil
	})
}

// informersOf returns the resource versions of kube-apiserver's informers.
func informersOf(metrics []byte) (revisions, error) {
	const series = `informer_store_resource_version{`
	all := revisions{}
	for line := range bytes.Lines(metrics) {
		text := string(line)
		if !strings.HasPrefix(text, series) || !strings.Contains(text, `name="kube-apiserver"`) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(text[strings.LastIndex(text, " "):]), 64)
		if err != nil {
			return nil, err
		}
		all[schema.GroupResource{Group: labelOf(text, "group"), Resource: labelOf(text, "resource")}] = int64(value)
	}
	if _, known := all[schema.GroupResource{Resource: "namespaces"}]; !known {
		return nil, errors.New("the metrics contain no informer of namespaces")
	}
	return all, nil
}

func labelOf(series, name string) string {
	_, rest, _ := strings.Cut(series, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// reload calls act, which installs a configuration. It then waits until the server's log reports
// that the server has loaded it. If the server rejects it, reload returns an error.
func (p *controlPlane) reload(ctx context.Context, act func() error) error {
	log, err := os.Open(filepath.Join(p.dir, "kube-apiserver.log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	if _, err := log.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	if err := act(); err != nil {
		return err
	}
	path := fmt.Sprintf("path=%q", currentConfig(p.dir))
	var logText []byte
	return poll(ctx, "the configuration", func(context.Context) error {
		more, err := io.ReadAll(log)
		if err != nil {
			return err
		}
		logText = append(logText, more...)
		for line := range bytes.Lines(logText) {
			text := string(line)
			if !strings.Contains(text, path) {
				continue
			}
			if strings.Contains(text, "Loaded a new version of a file") {
				return nil
			}
			if strings.Contains(text, "Rejected a new version of a file") && !strings.Contains(text, "no such file") {
				return permanentError{errors.New(text)}
			}
		}
		return errors.New("the server has not loaded it yet")
	})
}
