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

// WriteHTML writes the map as one page that loads no other file and uses no network. Names of
// objects are data in the page, never markup.
func (m *Map) WriteHTML(w io.Writer) error {
	page, err := template.ParseFS(pages, "page.html")
	if err != nil {
		return err
	}
	return page.Execute(w, m)
}
