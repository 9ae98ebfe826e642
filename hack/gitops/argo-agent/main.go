// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Argo-agent applies the manifests of a Git repository with the engine of Argo CD. The tests use it
// as the GitOps tool of a platform team. It is derived from the agent of gitops-engine, but listens
// only on the loopback address.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/engine"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
)

// markAnnotation is the annotation that contains the mark of an applied object. The agent prunes
// only objects with this annotation.
const markAnnotation = "gitops-agent.argoproj.io/gc-mark"

func main() {
	a := &agent{syncRequests: make(chan struct{})}
	flags := pflag.NewFlagSet("argo-agent", pflag.ExitOnError)
	flags.IntVar(&a.port, "port", 9001, "port on the loopback address for requests to synchronize")
	flags.IntVar(&a.resyncSeconds, "resync-seconds", 300, "seconds between two synchronizations")
	flags.StringVar(&a.namespace, "default-namespace", "default", "namespace of manifests that name none")
	_ = flags.Parse(os.Args[1:]) // ExitOnError
	if flags.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: argo-agent REPOSITORY [flags]")
		os.Exit(2)
	}
	a.repository = flags.Arg(0)
	if err := a.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "argo-agent:", err)
		os.Exit(1)
	}
}

type agent struct {
	repository    string
	namespace     string
	port          int
	resyncSeconds int

	// syncRequests has no buffer, so that a request returns when its synchronization starts.
	syncRequests chan struct{}
}

// mark is the cached value of an object's markAnnotation.
type mark string

// run synchronizes when it starts, on each request and after each interval. It returns only if an
// error occurs.
func (a *agent) run(ctx context.Context) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return err
	}
	clusterCache := cache.NewClusterCache(config, cache.SetPopulateResourceInfoHandler(
		func(u *unstructured.Unstructured, _ bool) (info any, cacheManifest bool) {
			m := mark(u.GetAnnotations()[markAnnotation])
			return m, m != ""
		}))
	e := engine.NewEngine(config, clusterCache)
	stop, err := e.Run()
	if err != nil {
		return fmt.Errorf("start the engine: %w", err)
	}
	defer stop()
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(a.port)))
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- a.serve(listener) }()
	interval := time.NewTicker(time.Duration(a.resyncSeconds) * time.Second)
	defer interval.Stop()
	for {
		if err := a.synchronize(ctx, e); err != nil {
			fmt.Fprintln(os.Stderr, "argo-agent: synchronize:", err)
		}
		select {
		case err := <-failed:
			return err
		case <-a.syncRequests:
		case <-interval.C:
		}
	}
}

// serve handles requests to synchronize.
func (a *agent) serve(listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/sync", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case a.syncRequests <- struct{}{}:
		case <-r.Context().Done():
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return server.Serve(listener)
}

// synchronize applies the manifests, prunes objects without a manifest, and prints the results.
func (a *agent) synchronize(ctx context.Context, e engine.GitOpsEngine) error {
	manifests, revision, err := a.manifests(ctx)
	if err != nil {
		return err
	}
	applied := func(r *cache.Resource) bool { return r.Info.(mark) == a.markOf(r.ResourceKey()) }
	results, err := e.Sync(ctx, manifests, applied, revision, a.namespace, sync.WithPrune(true))
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "RESOURCE\tRESULT")
	for _, r := range results {
		_, _ = fmt.Fprintf(w, "%s\t%s\n", r.ResourceKey.String(), r.Message)
	}
	return w.Flush()
}

// manifests returns the manifests in the repository, with their marks, and the repository's
// revision.
func (a *agent) manifests(ctx context.Context) (manifests []*unstructured.Unstructured, revision string, err error) {
	git := exec.CommandContext(ctx, "git", "rev-parse", "HEAD")
	git.Dir = a.repository
	head, err := git.Output()
	if err != nil {
		return nil, "", fmt.Errorf("git rev-parse HEAD: %w", err)
	}
	err = filepath.WalkDir(a.repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		data, err := os.ReadFile(path) // #nosec G304 G122 -- the repository is the caller's own
		if err != nil {
			return err
		}
		objects, err := kube.SplitYAML(data)
		if err != nil {
			return fmt.Errorf("parse %s: %w", path, err)
		}
		manifests = append(manifests, objects...)
		return nil
	})
	for _, m := range manifests {
		annotations := m.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[markAnnotation] = string(a.markOf(kube.GetResourceKey(m)))
		m.SetAnnotations(annotations)
	}
	return manifests, strings.TrimSpace(string(head)), err
}

// markOf returns the mark for an object that the agent applies from the repository.
func (a *agent) markOf(key kube.ResourceKey) mark {
	sum := sha256.Sum256([]byte(strings.Join([]string{a.repository, key.Group, key.Kind, key.Name}, "\n")))
	return mark("sha256." + base64.RawURLEncoding.EncodeToString(sum[:]))
}
