// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Command demo starts a control plane with two tenants, and sends requests with a real kubectl. It
// shows the allowed and the denied requests of each caller.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/kubetenant/kubetenant/test/localserver"
)

func main() {
	bin := flag.String("bin", "", "directory of the built commands")
	dir := flag.String("dir", "", "directory of the control plane; what is there is removed")
	exit := flag.Bool("exit", false, "stop the server at the end and fail if a request went otherwise than expected")
	keystone := flag.Bool("keystone", false, "show the callers of a real Keystone, which ends with the demo")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, options{*bin, *dir, *exit || *keystone, *keystone})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo is a running control plane, and the kubectl that sends requests to it.
type demo struct {
	out     io.Writer
	kubectl string
	server  *localserver.Server
	ends    []func() // these stop the identity providers
}

func (d *demo) close() {
	for _, end := range d.ends {
		end()
	}
}

// options contains the values of the flags. bin is the folder of the commands, and dir is the
// folder of the control plane's data. exit stops the server at the end of the demo. keystone adds
// callers that Keystone authenticates.
type options struct {
	bin, dir       string
	exit, keystone bool
}

func run(ctx context.Context, out io.Writer, o options) error {
	bin, dir := o.bin, o.dir
	if bin == "" || dir == "" {
		return errors.New("--bin and --dir are required")
	}
	if err := stopPrevious(dir); err != nil {
		return err
	}
	if err := removePrevious(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, content := range map[string]string{"tokens.csv": tokens, "passwords.csv": passwords} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintln(out, "starting kube-apiserver with the tenants acme and globex ...")
	start := localserver.StartDetached // the server continues to run after the demo
	if o.exit {
		start = localserver.Start
	}
	server, err := start(ctx, filepath.Join(bin, "kubetenant-local"), dir)
	if err != nil {
		return err
	}
	d := &demo{out: out, kubectl: filepath.Join(bin, "kubectl"), server: server}
	defer d.close()
	_, _ = fmt.Fprintf(out, "ready after %s\n\n", server.Ready)
	show := requests
	var projects *projectWalk
	err = d.prepare(ctx)
	if err == nil && o.keystone {
		show, projects, err = d.addKeystone(ctx)
	}
	differences := 0
	if err == nil {
		differences, err = d.walk(ctx, show)
	}
	if err == nil && o.keystone {
		var more int
		more, err = projects.run(ctx)
		differences += more
	}
	if err == nil && !o.keystone {
		differences += d.walkCommandLine(ctx)
		var more int
		more, err = d.walkGateway(ctx, bin)
		differences += more
	}
	if o.exit {
		err = errors.Join(err, server.Stop())
	}
	switch {
	case err != nil:
		return err
	case differences > 0:
		return fmt.Errorf("%d of the requests went otherwise than expected", differences)
	case !o.exit:
		d.printStopHelp()
	}
	return nil
}

// stopPrevious stops the server that an earlier demo left running in dir.
func stopPrevious(dir string) error {
	lock := filepath.Join(dir, "lock")
	f, err := os.Open(lock) // #nosec G304 -- in the demo's own directory
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		return nil // no process holds the lock
	}
	pid := 0
	if _, err := fmt.Fscan(f, &pid); err != nil || pid <= 1 {
		return fmt.Errorf("%s is in use by another process: stop it first", dir)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the server of an earlier demo (process %d): %w", pid, err)
	}
	for range 300 {
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("the server of an earlier demo (process %d) does not stop", pid)
}

// removePrevious deletes the directory of an earlier demo. It returns an error for any other
// directory that is not empty.
func removePrevious(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	isTokens := func(e os.DirEntry) bool { return e.Name() == "tokens.csv" }
	if !slices.ContainsFunc(entries, isTokens) {
		return fmt.Errorf("%s is not empty and not the directory of an earlier demo: choose another one", dir)
	}
	return os.RemoveAll(dir)
}

// walk sends the requests, and returns the number of unexpected results.
func (d *demo) walk(ctx context.Context, requests []request) (int, error) {
	table := tabwriter.NewWriter(d.out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "CALLER\tCREDENTIAL\tREQUEST\tEXPECTED\tGOT\tREASON OR ANSWER")
	differences := 0
	for _, r := range requests {
		got, reason := d.do(ctx, r)
		mark := ""
		if got != r.expected {
			differences++
			mark = "  <-- differs"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\tkubectl %s\t%s\t%s\t%s%s\n",
			r.caller, r.credential, r.commandText(), r.expected, got, reason, mark)
	}
	if err := table.Flush(); err != nil {
		return 0, err
	}
	_, _ = fmt.Fprintf(d.out, "\n%d passed, %d failed\n", len(requests)-differences, differences)
	return differences, nil
}

// run runs kubectl as a caller, with the given standard input.
func (d *demo) run(ctx context.Context, caller, input string, args ...string) (string, error) {
	// #nosec G204 -- the demo's own kubectl
	cmd := exec.CommandContext(ctx, d.kubectl, append([]string{"--kubeconfig", d.server.Kubeconfig(caller)}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	cmd.Env = append(os.Environ(), "KUBECTL_KUBERC=false")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// do sends a request. It returns the result, and the reason for a denial, the output of an
// allowed request, or the text of an error.
func (d *demo) do(ctx context.Context, r request) (got, reason string) {
	out, err := d.run(ctx, r.kubeconfig, r.input, r.args...)
	text := strings.Join(strings.Fields(out), " ")
	switch {
	case err == nil && r.output != "" && text != r.output:
		return "answered: " + text, ""
	case err == nil:
		return "answered", r.output
	case strings.Contains(text, "Unauthorized") || strings.Contains(text, "must be logged in"):
		return "401", "the credential is refused; the log says why"
	case strings.Contains(text, "Forbidden"), strings.Contains(text, "forbidden"):
		return "403", reasonIn(text)
	}
	return "error", text
}

// reasonIn extracts the reason for a denial from kubectl's output.
func reasonIn(text string) string {
	for _, beginning := range []string{"tenant subject: ", "tenant boundary: ", "tenant path: ", "tenant owner: "} {
		if i := strings.Index(text, beginning); i >= 0 {
			return text[i:]
		}
	}
	if i := strings.LastIndex(text, " is forbidden: "); i >= 0 {
		return text[i+len(" is forbidden: "):]
	}
	return text
}

func (d *demo) printStopHelp() {
	_, _ = fmt.Fprintf(d.out, `
The server is left running. Try it:

  %[1]s --kubeconfig %[2]s get ns
  %[1]s --kubeconfig %[2]s auth whoami
  %[1]s --kubeconfig %[3]s get pods -n acme--web

Tokens and passwords stand in %[4]s/tokens.csv and passwords.csv; the server
follows both, and %[4]s/tenancy.yaml. The demo's OpenID provider has ended: the
server knows its keys for another hour.

Stop it with:

  kill %[5]d
`, d.kubectl, d.server.Kubeconfig("acme"), d.server.Kubeconfig("globex"), d.server.Dir, d.server.PID)
}
