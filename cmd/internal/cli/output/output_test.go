package output_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/cmd/internal/cli/output"
)

// TestSafe: names that others choose steer no terminal, and look like no other line or cell.
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
		if got := output.Safe(text); got != want {
			t.Errorf("Safe(%q) = %q, want %q", text, got, want)
		}
	}
}

// FuzzSafe: nothing comes out that may steer a terminal, and what is harmless stays.
func FuzzSafe(f *testing.F) {
	f.Add("a\x1b]0;title\x07b")
	f.Fuzz(func(t *testing.T, text string) {
		got := output.Safe(text)
		if !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\n\r\t\x00\x07\u202e\u2028") {
			t.Errorf("Safe(%q) = %q", text, got)
		}
		if output.Safe(got) != got {
			t.Errorf("Safe(%q) is changed again", text)
		}
	})
}

// TestTable: elsewhere than on a terminal there are tabs, no colours, and one line for a row.
func TestTable(t *testing.T) {
	var b bytes.Buffer
	s := output.NewScreen(&b)
	if err := s.Table([]string{"NAME", "OWNER"}, [][]string{{"web\nX\tY", "acme"}}); err != nil {
		t.Fatal(err)
	}
	if want := "NAME\tOWNER\nweb\\nX\\tY\tacme\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	if got := s.Paint(output.Red, "x"); got != "x" {
		t.Errorf("a colour: %q", got)
	}
	s.Colour = true
	if got := s.Paint(output.Red, "x"); got != "\x1b[31mx\x1b[0m" || s.Paint(output.Red, "") != "" {
		t.Errorf("no colour: %q", got)
	}
}

func TestValue(t *testing.T) {
	for format, want := range map[string]string{output.JSON: "{\n  \"a\": \"<b>\"\n}\n", output.YAML: "a: <b>\n", "wide": ""} {
		var b bytes.Buffer
		done, err := output.Value(&b, format, map[string]string{"a": "<b>"})
		if done != (want != "") || err != nil || b.String() != want {
			t.Errorf("%s: %t, %v, %q", format, done, err, b.String())
		}
	}
}

// TestDocuments leaves out what only servers fill in.
func TestDocuments(t *testing.T) {
	ns := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "web", CreationTimestamp: metav1.Now()},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
	got, err := output.Documents(ns, ns)
	one := "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: web\nspec: {}\n"
	if err != nil || got != one+"---\n"+one {
		t.Errorf("%v:\n%s", err, got)
	}
}
