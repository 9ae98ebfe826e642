// Package output prints what the commands found: tables and colours on a terminal, lines with tabs
// elsewhere, JSON and YAML for programs.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// plainWidth is how wide lines may be where there is no terminal: they are for grep.
const plainWidth = math.MaxInt32

// minWidth is the narrowest width that anything is laid out for: a terminal that says it is narrower,
// or says nothing, gets lines that it wraps itself.
const minWidth = 20

// Screen is where text goes.
type Screen struct {
	io.Writer
	// Terminal says that somebody looks at it, Colour that he may be shown some.
	Terminal, Colour bool
	// Width in columns.
	Width int
}

// NewScreen returns the screen that w is: a terminal only where it is one. NO_COLOR and TERM=dumb are
// honoured.
func NewScreen(w io.Writer) *Screen {
	s := &Screen{Writer: w, Width: plainWidth}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.Terminal = true
	_, none := os.LookupEnv("NO_COLOR")
	s.Colour = !none && os.Getenv("TERM") != "dumb"
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		s.Width = max(width, minWidth)
	}
	return s
}

// Colours.
const (
	Bold  = "1"
	Red   = "31"
	Green = "32"
	Faint = "2"
)

// Paint returns text in a colour where there are any.
func (s *Screen) Paint(colour, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Table prints rows under a header: aligned on a terminal, with tabs between the cells elsewhere.
func (s *Screen) Table(header []string, rows [][]string) error {
	w := s.Writer
	flush := func() error { return nil }
	if s.Terminal {
		aligned := printers.GetNewTabWriter(s.Writer)
		w, flush = aligned, aligned.Flush
	}
	for _, row := range append([][]string{header}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = Safe(cell)
		}
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return flush()
}

// Safe returns text with its control characters written out: names are others' to choose, and must neither
// steer a terminal nor look like another line or cell.
//
// What is no UTF-8 is replaced: some terminals take single bytes for control characters.
func Safe(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if !strings.ContainsFunc(text, unsafe) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unsafe(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// unsafe reports control and format characters, those that change the direction of text among them.
func unsafe(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }

// Formats are the values of -o that are for programs.
const (
	JSON = "json"
	YAML = "yaml"
)

// Value prints v as JSON or YAML; false where the format is neither.
func Value(w io.Writer, format string, v any) (bool, error) {
	switch format {
	case JSON:
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return true, e.Encode(v)
	case YAML:
		text, err := yaml.Marshal(v)
		if err == nil {
			_, err = w.Write(text)
		}
		return true, err
	}
	return false, nil
}

// Documents returns objects as YAML, without what only servers fill in.
func Documents(all ...any) (string, error) {
	var parts []string
	for _, obj := range all {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return "", err
		}
		unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
		unstructured.RemoveNestedField(object, "status")
		text, err := yaml.Marshal(object)
		if err != nil {
			return "", err
		}
		parts = append(parts, string(text))
	}
	return strings.Join(parts, "---\n"), nil
}
