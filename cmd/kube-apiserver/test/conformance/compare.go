// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// outcome is the result of one test: passed, failed, skipped, crashed, absent, or another state of
// a Ginkgo spec. A crashed test ended its process. An absent test has a result on the other server
// only.
type outcome string

const (
	passed  outcome = "passed"
	failed  outcome = "failed"
	absent  outcome = "absent"
	crashed outcome = "crashed"
)

// process is the name of the test that is recorded as failed if a process fails, but none of
// its tests.
const process = "(the process)"

// difference is a test whose outcome differs between the servers. A difference by design has a
// Reason.
type difference struct {
	Package string `json:"package"`
	Test    string `json:"test"`
	// Vanilla and Tenancy are the outcomes on upstream's server and on the server with kubetenant.
	Vanilla outcome `json:"vanilla"`
	Tenancy outcome `json:"tenancy"`
	Reason  string  `json:"reason"`
}

func readDifferences(path string) ([]difference, error) {
	text, err := os.ReadFile(path) // #nosec G304 -- a path from the caller
	if err != nil {
		return nil, err
	}
	var list []difference
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, d := range list {
		if d.Package == "" || d.Test == "" || d.Reason == "" || d.Vanilla == d.Tenancy {
			return nil, fmt.Errorf("%s: each difference needs package, test, two outcomes and a reason", path)
		}
	}
	return list, nil
}

// comparison is the result of a suite on both servers. The list contains the differences by
// design.
type comparison struct {
	suite
	vanilla, tenancy map[string]outcome
	took             [2]time.Duration
	listed           []difference // differences on the list
	unlisted         []difference // differences that are not on the list
	obsolete         []difference // entries of the list that do not apply
}

func (c *comparison) asDesigned() bool { return len(c.unlisted)+len(c.obsolete) == 0 }

// compare runs the tests of a suite on both servers. If a difference is not on the list, its test
// runs again on both servers, because many tests depend on the load of the machine. A suite of
// Ginkgo specs runs again as a whole.
func (w *workspace) compare(ctx context.Context, s suite, byDesign []difference) (*comparison, error) {
	c := &comparison{suite: s}
	begun := time.Now()
	var err error
	if c.vanilla, err = w.runTests(ctx, s, "vanilla", nil); err != nil {
		return nil, err
	}
	if !slices.Contains(slices.Collect(maps.Values(c.vanilla)), passed) {
		return nil, fmt.Errorf("%s: nothing passes on upstream's server: %s.vanilla.log tells why", s.name(), w.binary(s))
	}
	c.took[0], begun = time.Since(begun), time.Now()
	if c.tenancy, err = w.runTests(ctx, s, "tenancy", nil); err != nil {
		return nil, err
	}
	c.took[1] = time.Since(begun)
	c.classify(byDesign)
	if c.asDesigned() || len(c.unlisted) == 0 {
		return c, nil
	}
	again := map[string]bool{}
	for _, d := range c.unlisted {
		top, _, _ := strings.Cut(d.Test, "/")
		again[top] = true
	}
	names := slices.Sorted(maps.Keys(again))
	_, _ = fmt.Fprintf(w.out, "%s: once more: %s\n", s.name(), strings.Join(names, ", "))
	for server, into := range map[string]map[string]outcome{"vanilla": c.vanilla, "tenancy": c.tenancy} {
		second, err := w.runTests(ctx, s, server, names)
		if err != nil {
			return nil, err
		}
		if s.specs {
			clear(into)
		}
		maps.Copy(into, second)
	}
	c.classify(byDesign)
	return c, nil
}

// classify determines the differences and whether they are on the list.
func (c *comparison) classify(byDesign []difference) {
	c.listed, c.unlisted, c.obsolete = nil, nil, nil
	names := map[string]outcome{}
	maps.Copy(names, c.vanilla)
	maps.Copy(names, c.tenancy)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		vanilla, tenancy := c.vanilla[name], c.tenancy[name]
		if vanilla == "" {
			vanilla = absent
		}
		if tenancy == "" {
			tenancy = absent
		}
		i := slices.IndexFunc(byDesign, func(d difference) bool { return d.Package == c.name() && d.Test == name })
		switch d := (difference{c.name(), name, vanilla, tenancy, ""}); {
		case i >= 0 && byDesign[i].Vanilla == vanilla && byDesign[i].Tenancy == tenancy:
			c.listed = append(c.listed, byDesign[i])
		case i >= 0:
			c.obsolete = append(c.obsolete, byDesign[i])
		case vanilla != tenancy && (vanilla != absent && tenancy != absent || !c.parentDiffers(name)):
			c.unlisted = append(c.unlisted, d)
		}
	}
	for _, d := range byDesign {
		if _, known := names[d.Test]; d.Package == c.name() && !known {
			c.obsolete = append(c.obsolete, d)
		}
	}
}

// parentDiffers reports whether the outcomes of any parent of a test differ. The test may then be
// absent because its parent failed earlier.
func (c *comparison) parentDiffers(name string) bool {
	for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		if c.vanilla[name[:i]] != c.tenancy[name[:i]] {
			return true
		}
	}
	return false
}

// runTests runs the tests of a suite on one server. If names is not empty, it runs only these
// tests, except in a suite of Ginkgo specs. If a test ends the process, the remaining tests run in
// a new process. A test has crashed if it ends two processes in succession.
func (w *workspace) runTests(ctx context.Context, s suite, server string, names []string) (map[string]outcome, error) {
	all, before := map[string]outcome{}, ""
	for round := 0; ; round++ {
		args := []string{"-test.v", "-test.timeout=" + w.timeout.String()}
		if len(names) > 0 && !s.specs {
			args = append(args, "-test.run=^("+strings.Join(names, "|")+")$")
		}
		if done := topLevel(all); len(done) > 0 {
			args = append(args, "-test.skip=^("+strings.Join(done, "|")+")$")
		}
		found, unfinished, err := w.runOnce(ctx, s, server, args)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, found)
		if unfinished == "" || s.specs || round > 20 {
			return all, nil
		}
		if unfinished == before { // it ended two processes in succession, so no earlier test is the cause
			all[unfinished] = crashed
		}
		before = unfinished
	}
}

func topLevel(outcomes map[string]outcome) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(outcomes)) {
		if !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	return names
}

// runOnce runs one process of tests. If a test ended the process, runOnce also returns the name of
// this test.
func (w *workspace) runOnce(
	ctx context.Context, s suite, server string, args []string,
) (found map[string]outcome, unfinished string, err error) {
	temp, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	ctx, cancel := context.WithTimeout(ctx, w.timeout+time.Minute)
	defer cancel()
	report := filepath.Join(temp, "report.json")
	if s.specs {
		args = append(args, "-ginkgo.json-report="+report, "-ginkgo.no-color")
	}
	module, err := filepath.Glob(filepath.Join(w.dir, "src", s.module+"@*"))
	if err != nil || len(module) != 1 {
		return nil, "", errors.Join(fmt.Errorf("no copy of %s", s.module), err)
	}
	cmd := exec.CommandContext(ctx, w.binary(s), args...) // #nosec G204 -- our own binary
	cmd.Dir = filepath.Join(module[0], s.path)
	inherited := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, tenancyConfig+"=")
	})
	cmd.Env = append(inherited, "PATH="+w.dir+string(os.PathListSeparator)+os.Getenv("PATH"), "TMPDIR="+temp,
		"KUBEBUILDER_ASSETS="+w.assets(server), "TEST_SRCDIR="+w.dir, "TEST_WORKSPACE=src")
	if server == "tenancy" {
		cmd.Env = append(cmd.Env, tenancyConfig+"="+w.config())
	}
	output, err := cmd.CombinedOutput()
	exit := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &exit) {
		return nil, "", errors.Join(err, w.killRemaining())
	}
	if err := w.killRemaining(); err != nil {
		return nil, "", err
	}
	if err := appendTo(w.binary(s)+"."+server+".log", output); err != nil {
		return nil, "", err
	}
	found, unfinished, err = readTests(bytes.NewReader(output))
	if err != nil {
		return nil, "", err
	}
	if s.specs { // all Ginkgo specs run within one plain test
		if unfinished != "" {
			found[unfinished] = crashed
		}
		specs, err := readSpecs(report)
		if err != nil {
			return nil, "", err
		}
		maps.Copy(found, specs)
		unfinished = ""
	}
	if exit != nil && unfinished == "" && !slices.Contains(slices.Collect(maps.Values(found)), failed) {
		found[process] = failed // for example, upstream's check for leaked goroutines
	}
	return found, unfinished, nil
}

func appendTo(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600) // #nosec G304 -- our own file
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

var result = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+)`)

var begun = regexp.MustCompile(`^=== (?:RUN|CONT) +([^/\s]+)$`)

// readTests reads the output of go test -v. It also returns the last test that started, if this
// test did not end.
func readTests(from io.Reader) (found map[string]outcome, unfinished string, err error) {
	words := map[string]outcome{"PASS": passed, "FAIL": failed, "SKIP": "skipped"}
	found = map[string]outcome{}
	last := ""
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if m := begun.FindStringSubmatch(lines.Text()); m != nil {
			last = m[1]
		}
		if m := result.FindStringSubmatch(lines.Text()); m != nil {
			found[m[2]] = words[m[1]]
		}
	}
	if _, ended := found[last]; !ended {
		unfinished = last
	}
	return found, unfinished, lines.Err()
}

// readSpecs reads a JSON report of Ginkgo.
func readSpecs(path string) (map[string]outcome, error) {
	text, err := os.ReadFile(path) // #nosec G304 -- our own file
	if errors.Is(err, os.ErrNotExist) {
		return map[string]outcome{}, nil // the process ended before it wrote the report
	}
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   outcome
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &reports)
	}
	if err != nil {
		return nil, err
	}
	out := map[string]outcome{}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), ": ")
			if spec.LeafNodeType == "It" || spec.State != passed {
				out[name] = spec.State
			}
		}
	}
	return out, nil
}

// count returns the number of tests with the given outcome, without subtests.
func count(outcomes map[string]outcome, want outcome) int {
	n := 0
	for name, got := range outcomes {
		if got == want && (!strings.Contains(name, "/") || strings.Contains(name, ": ")) {
			n++
		}
	}
	return n
}

func (c *comparison) print(out io.Writer) {
	_, _ = fmt.Fprintf(out, "%s: %d passed, %d failed; with tenancy %d passed, %d failed (%s, %s)\n", c.name(),
		count(c.vanilla, passed), count(c.vanilla, failed), count(c.tenancy, passed), count(c.tenancy, failed),
		c.took[0].Round(time.Second), c.took[1].Round(time.Second))
	show := func(title string, list []difference) {
		for _, d := range list {
			_, _ = fmt.Fprintf(out, "  %s: %s: %s, with tenancy %s\n", title, d.Test, d.Vanilla, d.Tenancy)
		}
	}
	show("not on the list", c.unlisted)
	show("on the list, and not so", c.obsolete)
}
