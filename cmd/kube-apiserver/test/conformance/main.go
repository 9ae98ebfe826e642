// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command conformance runs test suites of other projects against upstream's kube-apiserver and
// against the kube-apiserver with kubetenant. The suites are upstream's integration tests and
// controller-runtime's envtest packages. The command compares the outcome of each test. Every
// difference must be on a list that contains its reason, and every entry of the list must apply.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		stop()
		os.Exit(1)
	}
}

// errDiffers reports a difference that is not on the list, or an entry of the list that does not
// apply.
var errDiffers = errors.New("the servers differ in what is not on the list, or the list says more than is true")

func run(ctx context.Context, args []string, out io.Writer) error {
	w := &workspace{out: out}
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.StringVar(&w.bin, "bin", "", "folder of kube-apiserver, vanilla-kube-apiserver and kubectl")
	flags.StringVar(&w.dir, "dir", "", "folder for copies of the modules and the tests' binaries")
	list := flags.String("differences", "", "file of the differences that are by design")
	page := flags.String("page", "",
		"file whose table is written anew, of these results and those of earlier runs in dir; none leaves it")
	only := flags.String("only", "", "packages to run, comma-separated; all by default")
	flags.DurationVar(&w.timeout, "timeout", 30*time.Minute, "for the tests of one package on one server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	byDesign, err := readDifferences(*list)
	if err != nil {
		return err
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	if err := w.prepare(ctx, chosen); err != nil {
		return err
	}
	var results []comparison
	for _, p := range chosen {
		c, err := w.compare(ctx, p, byDesign)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name(), err)
		}
		results = append(results, *c)
		c.print(out)
		if err := w.storeRow(c); err != nil {
			return err
		}
	}
	if *page != "" {
		if err := w.writePage(*page); err != nil {
			return err
		}
	}
	for i := range results {
		if !results[i].asDesigned() {
			return errDiffers
		}
	}
	return nil
}

// suite is a package whose tests are run.
type suite struct {
	module string // one of the two modules below
	path   string // the package's path in the module
	// specs reports whether the tests contain Ginkgo specs.
	specs bool
}

const (
	kubernetes        = "k8s.io/kubernetes"
	controllerRuntime = "sigs.k8s.io/controller-runtime"
)

func (s suite) name() string { return s.module + "/" + s.path }

// suites returns all packages. The packages of each module are sorted by path.
func suites() []suite {
	var all []suite
	for _, path := range []string{
		"builder", "cache", "client", "client/apiutil", "cluster", "controller", "controller/controllerutil",
		"envtest", "handler", "internal/controller", "internal/recorder", "manager", "manager/internal/integration",
		"metrics/filters", "reconcile", "source", "webhook",
	} {
		all = append(all, suite{controllerRuntime, "pkg/" + path, true})
	}
	for _, path := range []string{
		"apiserver", "apiserver/apply", "auth", "cronjob", "deployment", "dryrun", "evictions", "garbagecollector", "job",
		"namespace", "quota", "replicaset", "serviceaccount", "statefulset",
	} {
		all = append(all, suite{kubernetes, "test/integration/" + path, false})
	}
	return all
}

// choose returns the suites with the given paths. If only is empty, it returns all suites.
func choose(only string) ([]suite, error) {
	if only == "" {
		return suites(), nil
	}
	var chosen []suite
	for _, want := range strings.Split(only, ",") {
		found := false
		for _, s := range suites() {
			if s.path == want {
				chosen, found = append(chosen, s), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no package %q is known", want)
		}
	}
	return chosen, nil
}

// binary returns the path of a suite's compiled tests.
func (w *workspace) binary(s suite) string {
	return filepath.Join(w.dir, strings.NewReplacer("/", "_").Replace(s.path)+".test")
}
