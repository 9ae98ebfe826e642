// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package accessmap

import (
	"embed"
	"html/template"
	"io"
)

//go:embed page.html
var pages embed.FS

// WriteHTML writes the map as one page that needs nothing else: no other file, no network. Names
// are data in it, never markup.
func (m *Map) WriteHTML(w io.Writer) error {
	page, err := template.ParseFS(pages, "page.html")
	if err != nil {
		return err
	}
	return page.Execute(w, m)
}
