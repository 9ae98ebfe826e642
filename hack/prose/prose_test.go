// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// long has 31 words.
const long = "Alpha two three four five six seven eight nine ten " +
	"one two three four five six seven eight nine ten one two three four five six seven eight nine ten eleven"

// violation is a sentence that breaks a rule. at is the word in the sentence at which the finding
// is expected.
type violation struct{ rule, sentence, at string }

func violations() []violation {
	return []violation{
		{"SentenceLength", long, "Alpha"},
		{"Phrases", "the old name counts no longer", "counts"},
		{"Pronouns", "a caller loses himself in it", "himself"},
		{"Spelling", "the object is labelled again", "labelled"},
		{"Words", "the tenant mends its objects", "mends"},
		{"SentenceStart", "Whose name is long waits", "Whose"},
	}
}

// hosts returns the contents of files, keyed by file name. plant replaces SENTENCE, WRAPPED and
// CONCAT in them with a sentence. WRAPPED means one word on each line, and CONCAT means two
// concatenated literals.
func hosts() map[string]string {
	const code = "package planted\n\n"
	return map[string]string{
		"paragraph.md": "# Page\n\nSENTENCE. It works.\n",
		"wrapped.md":   "It works.\nWRAPPED.\n",
		"item.md":      "Steps:\n\n- It works.\n  - SENTENCE.\n",
		"number.md":    "1. SENTENCE\n",
		"quote.md":     "> It works.\n> WRAPPED>\n",
		"heading.md":   "## SENTENCE\n\nIt works.\n",
		"link.md":      "[SENTENCE](https://example.com/page).\n",
		"aftercode.md": "```\ncode\n```\nUse `x`. SENTENCE.\n\n| a | b |\n|---|---|\n| c | d |\n",

		"errors.go":  code + "var err = errors.New(\"SENTENCE\")\n",
		"errorf.go":  code + "func f() error { return fmt.Errorf(\"read the \\\"%s\\\". SENTENCE: %w\", name, err) }\n",
		"field.go":   code + "var e = field.Invalid(path, value, \"SENTENCE\")\n",
		"cobra.go":   code + "var c = cobra.Command{Use: \"x\", Long: `It works.\n\nWRAPPED.\n`}\n",
		"example.go": code + "var c = cobra.Command{Example: \"  # SENTENCE\\n  kubectl tenant says nobody\"}\n",
		"flag.go":    code + "func f() { flags.StringVar(&s, \"name\", \"\", \"SENTENCE\") }\n",
		"reason.go":  code + "const R Reason = \"tenant. SENTENCE\"\n",
		"log.go":     code + "func f() { klog.FromContext(ctx).Info(\"SENTENCE\", \"key\", 1) }\n",
		"metric.go":  code + "var m = metrics.CounterOpts{Name: \"x_total\", Help: \"SENTENCE.\"}\n",
		"concat.go":  code + "var s = \"It works. CONCAT.\"\n",
		"operand.go": code + "var s = \"It works: \" + name + \". SENTENCE\"\n",
		"print.go":   code + "func f() { fmt.Fprintf(w, \"\\n\\tIt works.\\n\\nSENTENCE.\\n\") }\n",

		"line.go":       code + "// F works. SENTENCE.\nfunc F() {}\n",
		"lines.go":      code + "// F works.\n// WRAPPED//.\nfunc F() {}\n",
		"block.go":      code + "/*\nF works.\nWRAPPED.\n*/\nfunc F() {}\n",
		"trailing.go":   code + "var x = 1 // SENTENCE\n",
		"list.go":       code + "// F works:\n//   - SENTENCE\nfunc F() {}\n",
		"packagedoc.go": "// Package planted works.\n//\n// SENTENCE.\npackage planted\n",

		"config/v1alpha1/types.go": code + "// T works.\ntype T struct {\n" +
			"\t// name works.\n\t// WRAPPED//.\n\t// +required\n\tName string `json:\"name\"`\n}\n",

		"deploy/x/values.yaml": "# It works.\n# WRAPPED#\nname: x\n",
		"deploy/y/values.yaml": "name: x # SENTENCE\n",
		"deploy/x/NOTES.txt":   "{{ if .Values.x }}\n\nIt works.\nWRAPPED.\n{{ end }}\n",
	}
}

// plant inserts a sentence into a host.
func plant(host, sentence string) string {
	half := strings.Index(sentence, " ") + 1
	return strings.NewReplacer(
		"SENTENCE", sentence,
		"WRAPPED//", strings.ReplaceAll(sentence, " ", "\n\t// "),
		"WRAPPED>", strings.ReplaceAll(sentence, " ", "\n> "),
		"WRAPPED#", strings.ReplaceAll(sentence, " ", "\n# "),
		"WRAPPED", strings.ReplaceAll(sentence, " ", "\n"),
		"CONCAT", sentence[:half]+"\" +\n\t\""+sentence[half:],
	).Replace(host)
}

// TestHosts checks that a sentence that breaks a rule is found at each place for text. The
// finding must have the right rule, kind and position.
func TestHosts(t *testing.T) {
	type want struct {
		violation
		kind         string
		line, column int
	}
	var sources []*source
	var wants []want
	for name, host := range hosts() {
		for _, p := range violations() {
			content := plant(host, p.sentence)
			found, err := extract(name, []byte(content))
			if err != nil {
				t.Fatal(err)
			}
			if len(found) == 0 {
				t.Errorf("%s: no text found in\n%s", name, content)
				continue
			}
			line, column := position([]byte(content), strings.Index(content, p.at))
			sources = append(sources, found[len(found)-1])
			wants = append(wants, want{p, kindOf(name), line, column})
		}
	}
	runVale(t, sources)
	for i, s := range sources {
		w := wants[i]
		if len(s.findings) != 1 || s.kind != w.kind {
			t.Errorf("%s of kind %s has the findings %+v, want one of %s, kind %s, in\n%s",
				s.name, s.kind, s.findings, w.rule, w.kind, s.content)
			continue
		}
		f := s.findings[0]
		isWarning := w.rule == "Words" || w.rule == "SentenceStart"
		if f.rule != w.rule || f.line != w.line || f.column != w.column || f.isError == isWarning {
			t.Errorf("%s: got %+v, want %s at %d:%d in\n%s", s.name, f, w.rule, w.line, w.column, s.content)
		}
	}
}

func kindOf(host string) string {
	switch name := strings.TrimSuffix(host, ".go"); {
	case strings.HasSuffix(host, ".md"):
		return kindDoc
	case slices.Contains([]string{"line", "lines", "block", "trailing", "list", "packagedoc"}, name):
		return kindComment
	}
	return kindMessage
}

// TestRules checks that Vale finds each phrase and word that a rule forbids.
func TestRules(t *testing.T) {
	rules := map[string]string{
		"Phrases": "is nobody's, are nobody's, becomes nobody, counts no longer, count no longer, counts no more, " +
			"stands before, stand before, stands behind, stood behind, standing in front of, who asks, who asked, " +
			"whoever asks, what is asked, is told, are told, was told, be told, goes on, go on, went on, going on, " +
			"take back, takes back, took back, taken back, taking back, in place of, no more, any more",
		"Pronouns": "he, his, him, himself, she, her",
		"Spelling": "labelled, unlabelled, labelling, cancelled, modelling, colour, behaviour, favour, honoured, " +
			"authorise, authorised, unauthorised, authorisation, organise, recognises, initialising, serialise, " +
			"normalised, analyse, centre, licence, defence, catalogue, grey, fulfil, whilst, judgement, artefact, " +
			"learnt, spelt, towards, neighbour, dialled",
		"Words": "counts, who count, stands, stand, says, say, asks, ask, tells, tell, is looked, nobody, somebody, " +
			"everybody, anybody, whoever, whom, mend, mended, takes away, taken off, bear, bears, mint, minted, " +
			"tenant space, crossing, is open, not open, are closed, hygiene, living, lent, shape, shapes, sweep, " +
			"sweeps, stand-in, world, plane, beside, but for, anew, once more",
	}
	var sources []*source
	var want []string
	for rule, phrases := range rules {
		for phrase := range strings.SplitSeq(phrases, ", ") {
			sources = append(sources, page(t, "A tenant "+phrase+" this.\n"))
			want = append(want, rule)
		}
	}
	for _, start := range []string{"What", "Who", "Whoever", "Whose", "Of"} {
		sources = append(sources, page(t, "It works. "+start+" it is works.\n"))
		want = append(want, "SentenceStart")
	}
	runVale(t, sources)
	for i, s := range sources {
		t.Run(strings.TrimSpace(string(s.content)), func(t *testing.T) {
			if !slices.ContainsFunc(s.findings, func(f finding) bool { return f.rule == want[i] }) {
				t.Errorf("findings %+v, want %s", s.findings, want[i])
			}
		})
	}
}

// TestNoFindings checks that Vale finds nothing in text that breaks no rule, and that code,
// tables, link targets and values are ignored.
func TestNoFindings(t *testing.T) {
	const bad = "nobody counts no longer whom he labelled"
	good := map[string]string{
		"fence.md":     "```console\n$ " + bad + "\n```\n\n~~~\n" + bad + "\n~~~\n",
		"infence.md":   "- An item:\n\n  ```\n  " + bad + "\n  ```\n",
		"indented.md":  "It works:\n\n    " + bad + "\n",
		"span.md":      "It has `" + bad + "` and ``" + bad + "``.\n",
		"spanlines.md": "It has `nobody\ncounts` here.\n",
		"table.md":     "| " + bad + " | x |\n|---|---|\n| " + bad + " | y |\n",
		"target.md":    "See [a page](whom/nobody.md) and https://example.com/nobody/counts or\n\n[x]: whom/nobody.md\n",
		"comment.md":   "<!-- " + bad + " -->\nIt works.\n",
		"length.md":    strings.Replace(long, " two", "", 1) + ". It works.\n",
		"lines.md":     strings.Repeat("- A tenant has a name and a number and a place\n", 20),
		"value.md":     "Set `access: Open`. The caller holds no more than ten. What is a tenant?\n",
		"american.md":  "The control plane is labeled. A wise user exercises a promise and advertises an enterprise.\n",

		"docs/cli/x.md":            bad + "\n",
		"x/testdata/x.md":          bad + "\n",
		"tenant/client/x.go":       "package x\n\n// " + bad + "\n",
		"generated.go":             "// Code generated by a tool. DO NOT EDIT.\n\npackage x\n\n// " + bad + "\n",
		"x_test.go":                "package x\n\nvar s = \"" + bad + "\"\n",
		"test/x.go":                "package x\n\nvar s = \"" + bad + "\"\n",
		"tag.go":                   "package x\n\ntype t struct {\n\tX int `" + bad + "`\n}\n",
		"import.go":                "package x\n\nimport \"nobody counts\"\n",
		"pattern.go":               "package x\n\nvar r = regexp.MustCompile(`" + bad + "`)\n",
		"manifest.go":              "package x\n\nconst m = `apiVersion: v1\nmetadata: " + bad + "`\n",
		"key.go":                   "package x\n\nvar keys = []string{\"nobody\", \"nobody/counts\", \"access: Open\"}\n",
		"names.go":                 "package x\n\n// ReasonNotLabelled and asks.Mint are names. [Nobody_says] is one.\n",
		"directive.go":             "package x\n\n//go:generate he\n//nolint:whom // he\n// +kubebuilder:he\nvar x int\n",
		"license.go":               "// Nobody counts\n// SPDX-License-Identifier: Apache-2.0\n\npackage x\n",
		"output.go":                "package x\n\n// Output:\n// " + bad + "\n",
		"code.go":                  "package x\n\n// F works:\n//\n//\t" + bad + "\n//\n// It returns.\nfunc F() {}\n",
		"deploy/chart/values.yaml": "nobody: counts\nx: \"# he\"\n",
		"other/values.yaml":        "# " + bad + "\n",
		"deploy/chart/NOTES.txt":   "It works.\n\n    kubectl whom nobody\n{{- if .he }}\n",
	}
	var sources []*source
	byName := map[string][]*source{}
	for name, content := range good {
		if !isChecked(name) {
			continue
		}
		found, err := extract(name, []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, found...)
		byName[name] = found
	}
	runVale(t, sources)
	for name, found := range byName {
		t.Run(name, func(t *testing.T) {
			for _, s := range found {
				if len(s.findings) > 0 {
					t.Errorf("findings %+v in\n%s", s.findings, s.content)
				}
			}
		})
	}
}

// TestExtract checks the texts that Vale receives.
func TestExtract(t *testing.T) {
	cases := map[string]struct {
		content string
		want    []string
	}{
		"page.md": {
			"# A *page*\n\n![x](y.png)\n\nIt has `[x](y)` and [a `link`](z.md), see [all][x].\n![x](y.png)\n" +
				"- one\n  more\n- two\n",
			[]string{"A page", "It has Code and a Code, see all.", "one more", "two"},
		},
		"block.go": {
			"package x\n\n/* F works.\nIt returns [tenant.Of].\n\n\tcode\n\nAlways. */\nfunc F() {}\n",
			[]string{"F works. It returns Code.", "Always."},
		},
		"message.go": {
			"package x\n\nvar e = fmt.Errorf(\"read the \\\"%s\\\"\\tof\"+name+\"\\u00fc: %w\", a, b)\n",
			[]string{"read the \"Code\"\tofCodeü: Code"},
		},
		"deploy/x/values.yaml": {"# One\n# two.\na: b # Three.\n#\n# Four.\n", []string{"One two.", "Three.", "Four."}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			found, err := extract(name, []byte(c.content))
			if err != nil || len(found) != 1 {
				t.Fatalf("%d sources, %v", len(found), err)
			}
			var got []string
			for _, text := range found[0].texts {
				got = append(got, string(text.b))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func page(t *testing.T, content string) *source {
	t.Helper()
	found, err := extract("page.md", []byte(content))
	if err != nil || len(found) != 1 {
		t.Fatalf("extract: %d sources, %v", len(found), err)
	}
	return found[0]
}

func runVale(t *testing.T, sources []*source) {
	t.Helper()
	if err := vale(t.Context(), repository(t, "bin/vale"), repository(t, ".vale.ini"), sources); err != nil {
		t.Fatalf("%v (to build Vale: make check)", err)
	}
}

func repository(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCheck checks that findings above or below a ceiling are errors, and that lowering the
// ceilings never raises a ceiling.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"bin/vale", ".vale.ini", "hack/vale"} {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(repository(t, name), to); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "hack/prose"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	write := func(name, content string) {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	step := func(doing string, do action, want string) {
		t.Helper()
		got := ""
		if err := run(t.Context(), do, nil); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Fatalf("%s: got %q, want %q", doing, got, want)
		}
	}
	write("README.md", "It works.\n")
	write(ceilingsFile, "")
	step("a good page", check, "")
	write("README.md", "The name is nobody's.\n\nNobody mends it.\n")
	step("a bad page", check, "doc README.md: 1 errors, at most 0 are allowed: hack/prose.sh README.md")
	step("lower", lower, "")
	step("no ceiling was raised", check, "doc README.md: 1 errors, at most 0 are allowed: hack/prose.sh README.md")
	write(ceilingsFile, "doc README.md 1 3\n")
	step("a high ceiling", check, "doc README.md: fewer findings than its ceiling: run hack/prose.sh --lower")
	step("lower", lower, "")
	step("equal", check, "")
	write(ceilingsFile, "doc README.md 1 1\ndoc README.md 1 3\n")
	step("a lower line", check, "doc README.md: 2 warnings, at most 1 are allowed: hack/prose.sh README.md")
	write(ceilingsFile, "doc README.md 1 2\ndoc OLD.md 1 1\n")
	step("an old page", check, "doc OLD.md: has a ceiling but no text: run hack/prose.sh --lower")
	step("lower", lower, "")
	if err := run(t.Context(), lower, []string{"README.md"}); err == nil {
		t.Error("the ceilings of only one page were lowered")
	}
	write("README.md", "The name has no tenant.\n\nNobody mends it. Nobody.\n")
	step("one error less, one warning more", check,
		"doc README.md: 3 warnings, at most 2 are allowed: hack/prose.sh README.md")
}
