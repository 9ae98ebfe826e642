// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"
)

const customColumns = "custom-columns"

// columnsPrinter prints the columns of -o custom-columns. cli-runtime does not contain kubectl's
// printer for this format. An import of k8s.io/kubectl would add that module to the go.mod of every
// program that embeds the library.
type columnsPrinter struct {
	columns []Column
	paths   []*jsonpath.JSONPath
	options printers.PrintOptions
}

// newColumnsPrinter parses a specification in the form NAME:PATH,NAME:PATH. Like kubectl, it
// accepts the paths .name, name and {.name}.
func newColumnsPrinter(spec string, noHeaders bool) (*columnsPrinter, error) {
	p := &columnsPrinter{options: printers.PrintOptions{NoHeaders: noHeaders}}
	for part := range strings.SplitSeq(spec, ",") {
		name, path, found := strings.Cut(part, ":")
		if !found || name == "" || path == "" {
			return nil, fmt.Errorf("-o custom-columns: %q: must be NAME:PATH,NAME:PATH, such as TENANT:.name", part)
		}
		j := jsonpath.New(name).AllowMissingKeys(true)
		path = strings.TrimPrefix(strings.Trim(path, "{}"), ".")
		if err := j.Parse("{." + path + "}"); err != nil {
			return nil, fmt.Errorf("-o custom-columns: %s: %w", part, err)
		}
		p.columns, p.paths = append(p.columns, Column{Name: name}), append(p.paths, j)
	}
	return p, nil
}

// PrintObj implements [printers.ResourcePrinter] for lists of unstructured objects.
func (p *columnsPrinter) PrintObj(list runtime.Object, w io.Writer) error {
	l := &List{Columns: p.columns}
	err := meta.EachListItem(list, func(o runtime.Object) error {
		item, isUnstructured := o.(*unstructured.Unstructured)
		if !isUnstructured {
			return fmt.Errorf("%T", o)
		}
		row := Row{}
		for _, path := range p.paths {
			found, err := path.FindResults(item.Object)
			if err != nil {
				return err
			}
			var values []string
			for _, set := range found {
				for _, v := range set {
					values = append(values, fmt.Sprint(v.Interface()))
				}
			}
			row.Cells = append(row.Cells, strings.Join(values, ","))
		}
		l.Rows = append(l.Rows, row)
		return nil
	})
	if err != nil {
		return err
	}
	return NewScreen(w).Table(l, p.options)
}
