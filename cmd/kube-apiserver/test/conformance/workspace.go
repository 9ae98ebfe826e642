// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// workspace copies the modules, and compiles and runs their tests.
type workspace struct {
	bin, dir string
	timeout  time.Duration
	out      io.Writer
}

// tenancyConfig is the environment variable that enables tenancy in a test's server. The same test
// binary runs with both servers.
const tenancyConfig = "KUBETENANT_CONFIG"

// versionOfControllerRuntime is the version of controller-runtime whose tests run. The version
// of Kubernetes is that of the kube-apiserver with kubetenant.
const versionOfControllerRuntime = "v0.25.2"

// hook is a replacement of text in upstream's test framework. It changes the code that builds a
// server's configuration, or shortens the timeout of the check for leaked goroutines.
type hook struct{ file, old, new string }

const importOfApp = "\t\"k8s.io/kubernetes/cmd/kube-apiserver/app\"\n"

// hooks returns all replacements. If the text of a hook is not found, copyModule fails, because the
// tests would otherwise run against upstream's server only.
func hooks() []hook {
	ours := importOfApp + "\tkubetenant \"github.com/kubetenant/kubetenant/cmd/kube-apiserver/app\"\n"
	testServer, framework := "cmd/kube-apiserver/app/testing/testserver.go", "test/integration/framework/test_server.go"
	return []hook{
		{testServer, importOfApp, ours},
		{
			testServer,
			"config, err := app.NewConfig(completedOptions)",
			`config, _, err := kubetenant.NewConfig(tCtx, completedOptions, os.Getenv("` + tenancyConfig + `"))`,
		},
		{framework, importOfApp, ours},
		{framework, `	genericConfig, versionedInformers, storageFactory, err := controlplaneapiserver.BuildGenericConfig(
		completedOptions.CompletedOptions,
		[]*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme},
		controlplane.DefaultAPIResourceConfigSource(),
		generatedopenapi.GetOpenAPIDefinitions,
		nil,
	)
`, `	built, err := kubetenant.BuildGenericConfig(ctx, completedOptions, os.Getenv("` + tenancyConfig + `"))
`},
		{"test/integration/framework/goleak.go", "timeout := 600 * time.Second", "timeout := 120 * time.Second"},
		{
			framework, "app.CreateKubeAPIServerConfig(completedOptions, genericConfig, versionedInformers, storageFactory)",
			"app.CreateKubeAPIServerConfig(built.Options, built.Generic, built.Informer, built.Storage)",
		},
	}
}

// prepare copies the modules, and compiles etcd and the tests.
func (w *workspace) prepare(ctx context.Context, all []suite) error {
	for _, dir := range []string{w.dir, w.assets("vanilla"), w.assets("tenancy")} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
	}
	if err := w.prepareAssets(ctx); err != nil {
		return err
	}
	for _, s := range all {
		for _, server := range []string{"vanilla", "tenancy"} {
			if err := os.RemoveAll(w.binary(s) + "." + server + ".log"); err != nil {
				return err
			}
		}
	}
	copied := map[string]string{}
	for _, s := range all {
		dir, done := copied[s.module]
		if !done {
			var err error
			if dir, err = w.copyModule(ctx, s.module); err != nil {
				return err
			}
			copied[s.module] = dir
			if s.module == kubernetes { // the test servers write into the folder of apiextensions-apiserver
				if _, err = w.copyModule(ctx, "k8s.io/apiextensions-apiserver"); err != nil {
					return err
				}
			}
		}
		_, _ = fmt.Fprintf(w.out, "building the tests of %s ...\n", s.name())
		args := []string{"test", "-vet=off", "-c", "-o", w.binary(s)}
		if s.module == kubernetes {
			command := append(append([]string{"go"}, args...), "-mod=mod", "-modfile="+w.modFile(), s.name())
			if err := w.command(ctx, "", command...); err != nil {
				return err
			}
			continue
		}
		if err := w.command(ctx, dir, append(append([]string{"go"}, args...), "./"+s.path)...); err != nil {
			return err
		}
	}
	return nil
}

func (w *workspace) assets(server string) string { return filepath.Join(w.dir, server) }
func (w *workspace) config() string              { return filepath.Join(w.dir, "tenancy.yaml") }
func (w *workspace) modFile() string             { return filepath.Join(w.dir, "upstream.mod") }

// namespaces contains the namespaces whose service accounts upstream's tests use
// (test/integration/{auth,serviceaccount}, v1.37.1).
var namespaces = []string{
	"myns", "dra-authz-test", "auth-ns", "other-ns", "ns-1", "auto-mount-ns", "test-service-account-creation",
	"clean-ns-1", "clean-ns-2", "clean-ns-3", "clean-ns-4",
}

// tenancy returns a configuration with the defaults, except that all users and service accounts of
// the suites belong to the system tenant. The suites have no tenants.
func tenancy() string {
	var prefixes []string
	for c := '0'; c <= 'z'; c++ {
		switch {
		case c == 's': // without "sy", because system:anonymous must have no tenant
			for second := 'a'; second < 'y'; second++ {
				prefixes = append(prefixes, "s"+string(second))
			}
		case c <= '9', 'A' <= c && c <= 'Z', c >= 'a':
			prefixes = append(prefixes, string(c))
		}
	}
	return "apiVersion: kubetenant.dev/v1alpha1\nkind: TenancyConfiguration\nauthorization:\n" +
		"  systemNamespaces: [kube-system, kube-public, kube-node-lease, default, " + strings.Join(namespaces, ", ") + "]\n" +
		"  systemSubjects: { userPrefixes: [\"system:bootstrap:\", \"" + strings.Join(prefixes, `", "`) + "\"] }\n"
}

// prepareAssets writes the programs that envtest starts into a folder for each server. The server
// with kubetenant starts with its tenancy configuration.
func (w *workspace) prepareAssets(ctx context.Context) error {
	if err := os.WriteFile(w.config(), []byte(tenancy()), 0o600); err != nil {
		return err
	}
	etcd := filepath.Join(w.dir, "etcd")
	if err := w.command(ctx, "", "go", "build", "-o", etcd, "go.etcd.io/etcd/server/v3"); err != nil {
		return err
	}
	for server, binary := range map[string]string{"vanilla": "vanilla-kube-apiserver", "tenancy": "kube-apiserver"} {
		flags := ""
		if server == "tenancy" {
			flags = "--tenancy-config='" + w.config() + "' "
		}
		for name, target := range map[string]string{
			"kube-apiserver": filepath.Join(w.bin, binary),
			"etcd":           filepath.Join(w.dir, "etcd"),
			"kubectl":        filepath.Join(w.bin, "kubectl"),
		} {
			serverFlags := ""
			if name == "kube-apiserver" {
				serverFlags = flags
			}
			path := filepath.Join(w.assets(server), name)
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			start := fmt.Sprintf("#!/bin/sh\necho $$ >>'%s'\nexec '%s' %s\"$@\"\n", w.started(), target, serverFlags)
			if err := os.WriteFile(path, []byte(start), 0o700); err != nil { // #nosec G306 -- a program
				return err
			}
		}
	}
	return nil
}

// started returns the path of the file that lists the processes that envtest has started.
func (w *workspace) started() string { return filepath.Join(w.dir, "started") }

// killRemaining kills the processes that envtest started and that a suite did not stop.
func (w *workspace) killRemaining() error {
	text, err := os.ReadFile(w.started())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, id := range strings.Fields(string(text)) {
		commandLine, err := os.ReadFile(
			filepath.Join("/proc", id, "cmdline"),
		) // #nosec G304 G703 -- of a process that we started
		program, _, _ := strings.Cut(string(commandLine), "\x00")
		if err != nil || filepath.Dir(program) != w.bin && filepath.Dir(program) != w.dir { // the process ended
			continue
		}
		number, err := strconv.Atoi(id)
		if err != nil {
			return err
		}
		if err := syscall.Kill(number, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return errors.Join(err, os.Remove(w.started()))
}

// copyModule copies a whole module, because the tests write into the folders of their module. In a
// copy of Kubernetes, it also applies the hooks.
func (w *workspace) copyModule(ctx context.Context, module string) (string, error) {
	query := []string{"list", "-m", "-json", module}
	if module == controllerRuntime {
		query = []string{"mod", "download", "-json", module + "@" + versionOfControllerRuntime}
	}
	out, err := exec.CommandContext(ctx, "go", query...).Output() // #nosec G204 -- constants
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(query, " "), err)
	}
	var found struct{ Dir, Version string }
	if err := json.Unmarshal(out, &found); err != nil {
		return "", err
	}
	to := filepath.Join(w.dir, "src", module+"@"+found.Version)
	if err := os.RemoveAll(to); err != nil {
		return "", err
	}
	if err := os.CopyFS(to, os.DirFS(found.Dir)); err != nil {
		return "", err
	}
	if module != kubernetes {
		return to, nil
	}
	for _, h := range hooks() {
		path := filepath.Join(to, h.file)
		text, err := os.ReadFile(path) // #nosec G304 -- our own copy
		if err != nil {
			return "", err
		}
		if !bytes.Contains(text, []byte(h.old)) {
			return "", fmt.Errorf("%s: %q is not there any more", h.file, h.old)
		}
		text = bytes.Replace(text, []byte(h.old), []byte(h.new), 1)
		if err := os.WriteFile(path, unimport(text), 0o600); err != nil { // #nosec G703 -- our own copy
			return "", err
		}
	}
	return to, w.replace(ctx, to)
}

// unimport removes the imports that are unused after the hooks.
func unimport(text []byte) []byte {
	for path, name := range map[string]string{
		"k8s.io/apimachinery/pkg/runtime":                                      "runtime.",
		"k8s.io/kubernetes/pkg/api/legacyscheme":                               "legacyscheme.",
		"k8s.io/kubernetes/pkg/controlplane":                                   "controlplane.",
		`aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme`:        "aggregatorscheme.",
		`apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver`: "apiextensionsapiserver.",
		`controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver`:  "controlplaneapiserver.",
		`generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi`:            "generatedopenapi.",
	} {
		line := "\t\"" + path + "\"\n"
		if strings.Contains(path, `"`) {
			line = "\t" + path + "\"\n"
		}
		if bytes.Contains(text, []byte(line)) && !bytes.Contains(text, []byte(name)) {
			text = bytes.Replace(text, []byte(line), nil, 1)
		}
	}
	return text
}

// replace writes a module file that replaces Kubernetes with the copy.
func (w *workspace) replace(ctx context.Context, kubernetesDir string) error {
	for from, to := range map[string]string{
		"go.mod": w.modFile(),
		"go.sum": strings.TrimSuffix(w.modFile(), ".mod") + ".sum",
	} {
		text, err := os.ReadFile(from) // #nosec G304 -- constants
		if err == nil {
			err = os.WriteFile(to, text, 0o600) // #nosec G703 -- in our own folder
		}
		if err != nil {
			return err
		}
	}
	return w.command(ctx, "", "go", "mod", "edit", "-replace="+kubernetes+"="+kubernetesDir, w.modFile())
}

// command runs a command. If the command fails, the error contains its output.
func (w *workspace) command(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) // #nosec G204 -- our own command
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return nil
}
