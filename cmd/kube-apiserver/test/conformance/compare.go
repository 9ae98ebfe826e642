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

// outcome is the result of one test: passed, failed, skipped, pending, crashed or absent. A crashed
// test ended its process.
type outcome string

const (
	passed  outcome = "passed"
	failed  outcome = "failed"
	absent  outcome = "absent"
	crashed outcome = "crashed"
)

// process is the name under which a test process fails if none of its tests fails.
const process = "(the process)"

// difference is a test whose outcome differs between the servers. A difference by design has a
// Reason.
type difference struct {
	Package string `json:"package"`
	Test    string `json:"test"`
	// Vanilla and Tenancy are the outcomes on upstream's server and on the composed one.
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

// compared is the result of a suite on both servers.
type compared struct {
	suite
	vanilla, tenancy map[string]outcome
	took             [2]time.Duration
	listed           []difference // differences on the list
	unlisted         []difference // differences that are not on the list
	untrue           []difference // entries of the list that do not apply
}

func (c *compared) asDesigned() bool { return len(c.unlisted)+len(c.untrue) == 0 }

// compare runs the tests of a suite on both servers. Tests that differ and are not on the list run
// again on both servers, without the others. Many of them depend on the load of the machine.
func (w *workplace) compare(ctx context.Context, s suite, byDesign []difference) (*compared, error) {
	c := &compared{suite: s}
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
	c.judge(byDesign)
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
	c.judge(byDesign)
	return c, nil
}

// judge determines the differences and whether they are on the list.
func (c *compared) judge(byDesign []difference) {
	c.listed, c.unlisted, c.untrue = nil, nil, nil
	names := map[string]outcome{}
	maps.Copy(names, c.vanilla)
	maps.Copy(names, c.tenancy)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := c.vanilla[name], c.tenancy[name]
		if was == "" {
			was = absent
		}
		if is == "" {
			is = absent
		}
		i := slices.IndexFunc(byDesign, func(d difference) bool { return d.Package == c.name() && d.Test == name })
		switch d := (difference{c.name(), name, was, is, ""}); {
		case i >= 0 && byDesign[i].Vanilla == was && byDesign[i].Tenancy == is:
			c.listed = append(c.listed, byDesign[i])
		case i >= 0:
			c.untrue = append(c.untrue, byDesign[i])
		case was != is && (was != absent && is != absent || !c.differsAbove(name)):
			c.unlisted = append(c.unlisted, d)
		}
	}
	for _, d := range byDesign {
		if _, known := names[d.Test]; d.Package == c.name() && !known {
			c.untrue = append(c.untrue, d)
		}
	}
}

// differsAbove reports whether the outcomes of a parent of a test differ. Its subtests may then not
// have run.
func (c *compared) differsAbove(name string) bool {
	for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		if c.vanilla[name[:i]] != c.tenancy[name[:i]] {
			return true
		}
	}
	return false
}

// runTests runs the tests of a suite on one server. If names is not empty, it runs only these
// tests. If a test ends the process, the remaining tests run in a new process. A test has crashed
// if it ends two processes in succession.
func (w *workplace) runTests(ctx context.Context, s suite, server string, names []string) (map[string]outcome, error) {
	all, before := map[string]outcome{}, ""
	for round := 0; ; round++ {
		args := []string{"-test.v", "-test.timeout=" + w.timeout.String()}
		if len(names) > 0 && !s.specs {
			args = append(args, "-test.run=^("+strings.Join(names, "|")+")$")
		}
		if done := topLevel(all); len(done) > 0 {
			args = append(args, "-test.skip=^("+strings.Join(done, "|")+")$")
		}
		found, lost, err := w.runOnce(ctx, s, server, args)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, found)
		if lost == "" || s.specs || round > 20 {
			return all, nil
		}
		if lost == before { // the second time, so no earlier test is the cause
			all[lost] = crashed
		}
		before = lost
	}
}

func topLevel(of map[string]outcome) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	return names
}

// runOnce runs one process of tests. If the process did not finish, it also returns the test that
// was running.
func (w *workplace) runOnce(
	ctx context.Context, s suite, server string, args []string,
) (found map[string]outcome, lost string, err error) {
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
	said, err := cmd.CombinedOutput()
	exit := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &exit) {
		return nil, "", errors.Join(err, w.endLeft())
	}
	if err := w.endLeft(); err != nil {
		return nil, "", err
	}
	if err := appendTo(w.binary(s)+"."+server+".log", said); err != nil {
		return nil, "", err
	}
	found, lost, err = readTests(bytes.NewReader(said))
	if err != nil {
		return nil, "", err
	}
	if s.specs { // all Ginkgo specs run within one plain test
		if lost != "" {
			found[lost] = crashed
		}
		specs, err := readSpecs(report)
		if err != nil {
			return nil, "", err
		}
		maps.Copy(found, specs)
		lost = ""
	}
	if exit != nil && lost == "" && !slices.Contains(slices.Collect(maps.Values(found)), failed) {
		found[process] = failed // for example, upstream's check for leaked goroutines
	}
	return found, lost, nil
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

// readTests reads the output of go test -v. It also returns the test that started and did not end.
func readTests(from io.Reader) (found map[string]outcome, lost string, err error) {
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
		lost = last
	}
	return found, lost, lines.Err()
}

// readSpecs reads a report of Ginkgo.
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

// count returns the number of tests with an outcome, without subtests.
func count(of map[string]outcome, want outcome) int {
	n := 0
	for name, is := range of {
		if is == want && (!strings.Contains(name, "/") || strings.Contains(name, ": ")) {
			n++
		}
	}
	return n
}

func (c *compared) print(out io.Writer) {
	_, _ = fmt.Fprintf(out, "%s: %d passed, %d failed; with tenancy %d passed, %d failed (%s, %s)\n", c.name(),
		count(c.vanilla, passed), count(c.vanilla, failed), count(c.tenancy, passed), count(c.tenancy, failed),
		c.took[0].Round(time.Second), c.took[1].Round(time.Second))
	show := func(title string, list []difference) {
		for _, d := range list {
			_, _ = fmt.Fprintf(out, "  %s: %s: %s, with tenancy %s\n", title, d.Test, d.Vanilla, d.Tenancy)
		}
	}
	show("not on the list", c.unlisted)
	show("on the list, and not so", c.untrue)
}
