// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package output_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/kubetenant/kubetenant/internal/cli/output"
)

// TestSafe checks that names cannot control a terminal or imitate another line or cell.
func TestSafe(t *testing.T) {
	for text, want := range map[string]string{
		"acme--web":           "acme--web",
		"a\x1b[2Jb":           `a\x1b[2Jb`,
		"a\nb\tc\rd":          `a\nb\tc\rd`,
		"a\u202eb":            `a\u202eb`,
		"a\u2028b\u200bc":     `a\u2028b\u200bc`,
		"Zürich":              "Zürich",
		"a\x9b2Jb":            "a\ufffd2Jb",
		"a\x00b\x7fc\u0085d":  `a\x00b\x7fc\u0085d`,
		"a\U000e0041b\ufeffc": `a\U000e0041b\ufeffc`,
	} {
		t.Run(text, func(t *testing.T) {
			if got := output.Safe(text); got != want {
				t.Errorf("Safe(%q) = %q, want %q", text, got, want)
			}
		})
	}
}

// FuzzSafe checks that the result cannot control a terminal, and that Safe does not change it
// again.
func FuzzSafe(f *testing.F) {
	f.Add("a\x1b]0;title\x07b")
	f.Fuzz(func(t *testing.T, text string) {
		got := output.Safe(text)
		if !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\n\r\t\x00\x07\u202e\u2028") {
			t.Errorf("Safe(%q) = %q", text, got)
		}
		if output.Safe(got) != got {
			t.Errorf("the second call changes the result of Safe(%q)", text)
		}
	})
}

// format parses the flags in args with f, and returns f.
func format(t *testing.T, f *output.Format, args ...string) *output.Format {
	t.Helper()
	cmd := &cobra.Command{Use: "x", Run: func(*cobra.Command, []string) {}}
	f.AddFlags(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return f
}

func list() *output.List {
	return &output.List{
		Columns: append(output.Columns("Name", "Owner"), output.Column{Name: "Why", Wide: true}),
		Rows: []output.Row{
			{
				Kind:  schema.GroupKind{Kind: "User"},
				Name:  "web\nX\tY",
				Cells: []string{"web\nX\tY", "acme", "<b>"},
				Item:  map[string]any{"name": "web", "owners": []string{"acme"}},
			},
			{
				Kind:  schema.GroupKind{Group: "example.com", Kind: "Robot"},
				Name:  "r",
				Cells: []string{"r", "", ""},
				Item:  map[string]any{"name": "r"},
			},
			{
				Kind:  schema.GroupKind{Group: "example.com", Kind: "Robot"},
				Name:  "r",
				Cells: []string{"r", "", ""},
				Item:  map[string]any{"name": "r"},
			},
		},
	}
}

// TestList checks a list in each of kubectl's list formats. In text formats, each row is one line,
// even if a name contains line breaks.
func TestList(t *testing.T) {
	for args, want := range map[string]string{
		"":             "NAME        OWNER\nweb\\nX\\tY   acme\nr           <none>\nr           <none>\n",
		"--no-headers": "web\\nX\\tY   acme\nr           <none>\nr           <none>\n",
		"-owide": "NAME        OWNER    WHY\nweb\\nX\\tY   acme     <b>\nr           <none>   <none>\n" +
			"r           <none>   <none>\n",
		"-oname": "user/web\\nX\\tY\nrobot.example.com/r\n",
		"-oyaml": "apiVersion: v1\nitems:\n" +
			"- apiVersion: cli.kubetenant.dev/v1alpha1\n  kind: User\n  metadata:\n    name: \"web\\nX\\tY\"\n  name: web\n" +
			"  owners:\n  - acme\n" +
			strings.Repeat("- apiVersion: cli.kubetenant.dev/v1alpha1\n  kind: Robot\n  metadata:\n    name: r\n"+
				"  name: r\n", 2) +
			"kind: List\n",
		"-ojsonpath={.items[*].metadata.name}":           "web\nX\tY r r",
		"-ojsonpath={.items[*].kind}":                    "User Robot Robot",
		"-ojsonpath={.items[*].name}":                    "web r r",
		"-ogo-template={{range.items}}{{.name}};{{end}}": "web;r;r;",
		"-ocustom-columns=WHO:.name,WHOSE:{.owners}":     "WHO   WHOSE\nweb   [acme]\nr     <none>\nr     <none>\n",
	} {
		t.Run(args, func(t *testing.T) {
			f := format(t, output.NewListFormat(), strings.Fields(args)...)
			var b bytes.Buffer
			if err := f.Check(); err != nil {
				t.Fatal(err)
			}
			if err := f.List(&b, list()); err != nil || b.String() != want {
				t.Errorf("%v\n%q, want\n%q", err, b.String(), want)
			}
		})
	}
}

// fullDisk is a writer that fails because the disk is full.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

var errFull = errors.New("no space left on device")

// TestListFails checks that List returns a write error, for short lists and for lists that are
// written in several parts.
func TestListFails(t *testing.T) {
	for _, args := range []string{"", "-oname", "-oyaml"} {
		for _, rows := range []int{1, 10_000} {
			f := format(t, output.NewListFormat(), strings.Fields(args)...)
			l := list()
			for len(l.Rows) < rows {
				row := l.Rows[0]
				row.Name = strconv.Itoa(len(l.Rows))
				l.Rows = append(l.Rows, row)
			}
			if err := errors.Join(f.Check(), f.List(fullDisk{}, l)); !errors.Is(err, errFull) {
				t.Errorf("%q, %d rows: %v", args, rows, err)
			}
		}
	}
}

// TestFormatRefused checks that Check rejects invalid values of -o.
func TestFormatRefused(t *testing.T) {
	for args, want := range map[string]string{
		"-oxml":                  "-o xml: must be one of wide, json, yaml, kyaml, name, go-template",
		"-ocustom-columns":       "must be NAME:PATH",
		"-ocustom-columns=A:.x[": "custom-columns: A:.x[",
		"-ojsonpath={.x":         "unclosed action",
		"-ogo-template={{":       "template",
	} {
		t.Run(args, func(t *testing.T) {
			if err := format(t, output.NewListFormat(), args).Check(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
	if err := format(t, output.NewFormat("html"), "-oname").Check(); err == nil ||
		!strings.HasPrefix(err.Error(), "-o name: must be one of html, json") {
		t.Errorf("-o name for a value: %v", err)
	}
}

// TestFormatsMatchKubectl checks that -o accepts each format of kubectl's flag -o. With --template
// but without -o, the format is a Go template.
func TestFormatsMatchKubectl(t *testing.T) {
	file := filepath.Join(t.TempDir(), "template")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range genericclioptions.NewPrintFlags("").AllowedFormats() {
		t.Run(name, func(t *testing.T) {
			args := []string{"-o" + name}
			if strings.Contains(name, "template") || strings.Contains(name, "jsonpath") {
				if err := format(t, output.NewObjectFormat(), args...).Check(); err == nil ||
					!strings.Contains(err.Error(), "the template is missing") {
					t.Errorf("without a template: %v", err)
				}
				args = []string{"-o" + name + "=" + file}
			}
			f := format(t, output.NewObjectFormat(), args...)
			if err := f.Check(); err != nil || f.IsText() {
				t.Errorf("%v, text: %t", err, f.IsText())
			}
		})
	}
	for args, want := range map[string]string{
		"--template={{.a}}":                                      "<b>",
		"--template={.a} -ojsonpath":                             "<b>",
		"--template=[{.a}] -ojsonpath":                           "[<b>]",
		"-ojsonpath-as-json={.a}":                                "[\n    \"\\u003cb\\u003e\"\n]\n",
		"-otemplate={{.none}}":                                   "<no value>",
		"-otemplate-is-not-one={{.none}}":                        "must be one of",
		"-ogo-template-file=does-not-exist":                      "no such file",
		"-ojsonpath={.none} --allow-missing-template-keys=false": "none is not found",
	} {
		t.Run(args, func(t *testing.T) {
			f := format(t, output.NewFormat(), strings.Fields(args)...)
			var b bytes.Buffer
			err := f.Check()
			if err == nil {
				_, err = f.Value(&b, "Letter", map[string]any{"a": "<b>"})
			}
			if got := b.String(); err != nil && !strings.Contains(err.Error(), want) || err == nil && got != want {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		})
	}
}

// TestNarrow checks that a list is printed as one block for each row if the terminal is too narrow
// for the table.
func TestNarrow(t *testing.T) {
	var b bytes.Buffer
	s := &output.Screen{Writer: &b, Terminal: true, Width: 16}
	if err := s.Table(list(), printers.PrintOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := "Name:    web\\nX\\tY\nOwner:   acme\n\nName:    r\nOwner:   <none>\n\nName:    r\n" +
		"Owner:   <none>\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	b.Reset()
	if s.Width = 18; s.Table(list(), printers.PrintOptions{}) != nil || !strings.HasPrefix(b.String(), "NAME  ") {
		t.Errorf("%q", b.String())
	}
	if got := s.Paint(output.Red, "x"); got != "x" {
		t.Errorf("unexpected color: %q", got)
	}
	s.Color = true
	if got := s.Paint(output.Red, "x"); got != "\x1b[31mx\x1b[0m" || s.Paint(output.Red, "") != "" {
		t.Errorf("missing color: %q", got)
	}
}

func TestValue(t *testing.T) {
	for args, want := range map[string]string{
		"-oyaml":               "a: <b>\napiVersion: cli.kubetenant.dev/v1alpha1\nkind: Letter\n",
		"-ojsonpath={.a}":      "<b>",
		"-ogo-template={{.a}}": "<b>",
		"":                     "",
	} {
		t.Run(args, func(t *testing.T) {
			f := format(t, output.NewFormat(), strings.Fields(args)...)
			if err := f.Check(); err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			done, err := f.Value(&b, "Letter", map[string]string{"a": "<b>"})
			if done == f.IsText() || err != nil || b.String() != want {
				t.Errorf("%t, %v, %q", done, err, b.String())
			}
		})
	}
}
