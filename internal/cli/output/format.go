// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/kubetenant/kubetenant/internal/yamlfile"
	"github.com/kubetenant/kubetenant/tenant"
)

// APIVersion is the API version of printed values and list items that are not Kubernetes objects.
// A list is a v1 List, as in kubectl.
const APIVersion = "cli." + tenant.Domain + "/v1alpha1"

const (
	formatName = "name"
	formatWide = "wide"
)

// Format is the output format of a command. It has kubectl's flag -o and the related flags.
// Formats for programs use kubectl's printers. The default format is text for people, which each
// command prints itself.
type Format struct {
	output     string
	template   string
	missing    bool // --allow-missing-template-keys
	ownFormats []string
	hasNames   bool
	isList     bool
	noHeaders  bool
	printer    printers.ResourcePrinter
}

// NewFormat returns the format of a command that prints one value. own contains the values of -o
// that the command implements itself.
func NewFormat(own ...string) *Format { return &Format{ownFormats: own} }

// NewObjectFormat returns the format of a command that prints Kubernetes objects.
func NewObjectFormat() *Format { return &Format{hasNames: true} }

// NewListFormat returns the format of a command that prints a list. own is as in [NewFormat].
func NewListFormat(own ...string) *Format {
	return &Format{ownFormats: append(own, formatWide), hasNames: true, isList: true}
}

// Is reports whether the value of -o is own, a format that the command implements itself.
func (f *Format) Is(own string) bool { return f.output == own }

// IsText reports whether the command prints its output itself: the format is the default or one of
// its own. [Format.Check] must be called first.
func (f *Format) IsText() bool { return f.printer == nil }

// OmitHeaders omits the column headers of lists that are printed afterward.
func (f *Format) OmitHeaders() { f.noHeaders = true }

func (f *Format) allowed() []string {
	all := slices.Concat(f.ownFormats, []string{"json", "yaml", "kyaml"})
	if f.hasNames {
		all = append(all, formatName)
	}
	all = slices.Concat(all, goTemplates(), jsonPaths())
	if f.isList {
		all = append(all, customColumns)
	}
	return all
}

// AddFlags adds -o and the related flags to a command.
func (f *Format) AddFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.template, "template", "", "template, or file with a template, for -o go-template and jsonpath")
	_ = cmd.MarkFlagFilename("template")
	flags.BoolVar(&f.missing, "allow-missing-template-keys", true, "ignore fields that the template uses and the object "+
		"does not have")
	flags.StringVarP(&f.output, "output", "o", "", "output format: "+strings.Join(f.allowed(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(f.allowed(), cobra.ShellCompDirectiveNoFileComp))
	if f.isList {
		flags.BoolVar(&f.noHeaders, "no-headers", false, "do not print the column headers")
	}
}

// Check validates -o and prepares the printer. Commands call it before they send a request.
func (f *Format) Check() error {
	if f.output == "" && f.template == "" || slices.Contains(f.ownFormats, f.output) {
		return nil
	}
	if spec, found := strings.CutPrefix(f.output, customColumns); found && f.isList {
		p, err := newColumnsPrinter(strings.TrimPrefix(spec, "="), f.noHeaders)
		f.printer = p
		return err
	}
	p, err := f.newPrinter()
	f.printer = p
	return err
}

// Value prints v as an object of the given kind if the format is for programs. Otherwise, it
// returns false. [Format.Check] must be called first.
func (f *Format) Value(w io.Writer, kind string, v any) (done bool, err error) {
	if f.printer == nil {
		return false, nil
	}
	content, err := contentOf(v)
	if err != nil {
		return true, err
	}
	object, isMap := content.(map[string]any)
	if !isMap {
		return true, errors.New("the output is not an object")
	}
	object["apiVersion"], object["kind"] = APIVersion, kind
	return true, writeObject(w, f.printer, &unstructured.Unstructured{Object: object})
}

// Objects prints Kubernetes objects as kubectl does if the format is for programs. Otherwise, it
// returns false. It prints several objects as a List, and omits the fields that only servers set.
func (f *Format) Objects(w io.Writer, all ...runtime.Object) (done bool, err error) {
	if f.printer == nil {
		return false, nil
	}
	list := newList(len(all))
	for _, o := range all {
		object, err := yamlfile.Object(o)
		if err != nil {
			return true, err
		}
		list.Items = append(list.Items, unstructured.Unstructured{Object: object})
	}
	if len(list.Items) == 1 {
		return true, writeObject(w, f.printer, &list.Items[0])
	}
	return true, writeObject(w, f.printer, list)
}

// List is the output of a list command.
type List struct {
	Columns []Column
	Rows    []Row
}

// Column is a column of a list. If Wide is true, it is printed only with -o wide.
type Column struct {
	Name string
	Wide bool
}

// Columns returns columns with the specified names.
func Columns(names ...string) (all []Column) {
	for _, name := range names {
		all = append(all, Column{Name: name})
	}
	return all
}

// Row is a row of a list.
type Row struct {
	// -o name prints Kind and Name. It prints rows with the same Kind and Name only once.
	Kind schema.GroupKind
	Name string
	// Cells contains the text for each column of the table. Item is the value for programs.
	Cells []string
	Item  any
}

// List prints a list. The default format is a table, or one block for each row if the terminal is
// too narrow for the table. [Format.Check] must be called first.
func (f *Format) List(w io.Writer, l *List) error {
	if f.printer == nil {
		return NewScreen(w).Table(l, printers.PrintOptions{NoHeaders: f.noHeaders, Wide: f.Is(formatWide)})
	}
	list := newList(len(l.Rows))
	seen := map[schema.GroupKind]map[string]bool{}
	for i := range l.Rows {
		r := &l.Rows[i]
		if f.output != formatName {
			content, err := contentOf(r.Item)
			if err != nil {
				return err
			}
			object, _ := content.(map[string]any)
			identify(object, r)
			list.Items = append(list.Items, unstructured.Unstructured{Object: object})
			continue
		}
		if seen[r.Kind] == nil {
			seen[r.Kind] = map[string]bool{}
		}
		if seen[r.Kind][r.Name] {
			continue
		}
		seen[r.Kind][r.Name] = true
		named := unstructured.Unstructured{}
		named.SetGroupVersionKind(r.Kind.WithVersion(runtime.APIVersionInternal))
		named.SetName(Safe(r.Name))
		list.Items = append(list.Items, named)
	}
	return writeObject(w, f.printer, list)
}

// identify adds the API version, kind and name to an item that is not a Kubernetes object. No
// server serves this API version, so kubectl apply rejects the item.
func identify(item map[string]any, row *Row) {
	if item == nil || item["apiVersion"] != nil {
		return
	}
	item["apiVersion"] = APIVersion
	if item["kind"] == nil {
		item["kind"] = row.Kind.Kind
	}
	if item["metadata"] == nil {
		item["metadata"] = map[string]any{"name": row.Name}
	}
}

// writeObject prints an object through a buffer. The printers of cli-runtime ignore write errors,
// and would send each cell to w separately.
func writeObject(w io.Writer, p printers.ResourcePrinter, o runtime.Object) error {
	buffered := bufio.NewWriterSize(w, 64<<10)
	err := p.PrintObj(o, buffered)
	if failed := buffered.Flush(); err == nil {
		err = failed
	}
	return err
}

func newList(size int) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{Items: make([]unstructured.Unstructured, 0, size)}
	list.SetAPIVersion("v1")
	list.SetKind("List")
	return list
}

// contentOf converts v to the types of decoded JSON.
func contentOf(v any) (content any, err error) {
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &content)
	}
	return content, err
}

// Table prints rows with kubectl's printer, or as blocks if the terminal is too narrow for a table.
func (s *Screen) Table(l *List, options printers.PrintOptions) error {
	t := &metav1.Table{Rows: make([]metav1.TableRow, 0, len(l.Rows))}
	for _, c := range l.Columns {
		d := metav1.TableColumnDefinition{Name: c.Name, Type: "string"}
		if c.Wide {
			d.Priority = 1
		}
		t.ColumnDefinitions = append(t.ColumnDefinitions, d)
	}
	for i := range l.Rows {
		cells := make([]any, 0, len(l.Rows[i].Cells))
		for _, cell := range l.Rows[i].Cells {
			if cell == "" {
				cell = none
			}
			cells = append(cells, Safe(cell))
		}
		t.Rows = append(t.Rows, metav1.TableRow{Cells: cells})
	}
	if columns := shownColumns(t, options); s.Terminal && s.Width < widthOf(t, columns) {
		return s.blocks(t, columns)
	}
	return writeObject(s.Writer, printers.NewTablePrinter(options), t)
}

// none is the text for an empty cell.
const none = "<none>"

// columnGap is the number of spaces between the columns of kubectl's tables.
const columnGap = 3

// shownColumns returns the indices of the columns that are printed.
func shownColumns(t *metav1.Table, options printers.PrintOptions) (columns []int) {
	for i, c := range t.ColumnDefinitions {
		if c.Priority == 0 || options.Wide {
			columns = append(columns, i)
		}
	}
	return columns
}

func widthOf(t *metav1.Table, columns []int) (width int) {
	for _, i := range columns {
		widest := len(t.ColumnDefinitions[i].Name)
		for _, r := range t.Rows {
			widest = max(widest, len(fmt.Sprint(r.Cells[i])))
		}
		width += widest + columnGap
	}
	return width - columnGap
}

// blocks prints one block for each row, with one line for each cell.
func (s *Screen) blocks(t *metav1.Table, columns []int) error {
	for i, r := range t.Rows {
		var fields [][2]string
		for _, j := range columns {
			fields = append(fields, [2]string{t.ColumnDefinitions[j].Name, fmt.Sprint(r.Cells[j])})
		}
		if i > 0 {
			if _, err := fmt.Fprintln(s); err != nil {
				return err
			}
		}
		if err := s.Fields(fields); err != nil {
			return err
		}
	}
	return nil
}

// Fields prints names and values in the form of kubectl describe.
func (s *Screen) Fields(fields [][2]string) error {
	w := printers.GetNewTabWriter(s.Writer)
	for _, field := range fields {
		if _, err := fmt.Fprintf(w, "%s:\t%s\n", field[0], Safe(field[1])); err != nil {
			return err
		}
	}
	return w.Flush()
}
