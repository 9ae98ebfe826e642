// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges

import (
	"embed"
	"html/template"
	"io"
)

//go:embed page.html
var pages embed.FS

// WriteHTML writes listings as one page that loads no other file.
func WriteHTML(w io.Writer, all []*Listing) error {
	page, err := template.New("page.html").Funcs(template.FuncMap{"rule": RuleText}).ParseFS(pages, "page.html")
	if err != nil {
		return err
	}
	return page.Execute(w, all)
}
