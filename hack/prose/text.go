// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
)

// A text is prose from a file. The byte b[i] is at offset at[i] in the file.
type text struct {
	b  []byte
	at []int
}

// slice returns the text between two offsets of source.
func slice(source []byte, from, to int) text {
	var t text
	for i := from; i < to; i++ {
		t.add(source[i], i)
	}
	return t
}

func (t *text) add(c byte, at int) {
	t.b = append(t.b, c)
	t.at = append(t.at, at)
}

func (t *text) addString(s string, at int) {
	for i := range len(s) {
		t.add(s[i], at)
	}
}

func (t *text) addText(o text) {
	t.b = append(t.b, o.b...)
	t.at = append(t.at, o.at...)
}

func (t text) cut(from, to int) text { return text{t.b[from:to], t.at[from:to]} }

// trim removes white space at both ends.
func (t text) trim() text {
	left := len(t.b) - len(strings.TrimLeft(string(t.b), " \t\r\n"))
	right := len(strings.TrimRight(string(t.b), " \t\r\n"))
	return t.cut(min(left, right), right)
}

func (t text) lines() []text {
	var lines []text
	from := 0
	for i, c := range t.b {
		if c == '\n' {
			lines = append(lines, t.cut(from, i))
			from = i + 1
		}
	}
	return append(lines, t.cut(from, len(t.b)))
}

// replace replaces each match of re with the first group of the match. If this group is missing
// or empty, it inserts with instead.
func (t text) replace(re *regexp.Regexp, with string) text {
	var out text
	last := 0
	for _, m := range re.FindAllSubmatchIndex(t.b, -1) {
		out.addText(t.cut(last, m[0]))
		if len(m) > 2 && m[3] > m[2] {
			out.addText(t.cut(m[2], m[3]))
		} else {
			out.addString(with, t.at[m[0]])
		}
		last = m[1]
	}
	out.addText(t.cut(last, len(t.b)))
	return out
}

// placeholder replaces code and values, so that a sentence has about the same length.
const placeholder = "Code"

var (
	fence    = regexp.MustCompile("^\\s*(?:```|~~~)")
	listItem = regexp.MustCompile(`^\s*(?:[-*+]|\d+[.)])\s+`)
	heading  = regexp.MustCompile(`^#{1,6} `)
	reading  = regexp.MustCompile(`^\s*\[[^\]]+\]:\s`) // a link definition
	quote    = regexp.MustCompile(`^\s*>\s?`)
	indented = regexp.MustCompile(`^(?:\t| {4})`)

	htmlComments = regexp.MustCompile(`(?s)<!--.*?-->`)
	codeSpans    = regexp.MustCompile("``.+?``|`[^`]+`")
	images       = regexp.MustCompile(`!\[[^\]]*\]\([^)]*\)`)
	links        = regexp.MustCompile(`\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])`)
	urls         = regexp.MustCompile(`<?\bhttps?://[^\s>)]+>?`)
	identifiers  = regexp.MustCompile(`\b\w{2,}(?:[._]\w+)+|--[a-z][\w-]*`)
	htmlTags     = regexp.MustCompile(`</?[a-z][^<>]*>`)
	emphasis     = regexp.MustCompile(`\*+`)
	symbols      = regexp.MustCompile(`\[([A-Za-z0-9_./*]+)\]`)
	verbs        = regexp.MustCompile(`%[-+# 0]*(?:\[\d+\])?[\d.*]*[a-zA-Z]|\{\{.*?\}\}`)
)

// paragraphs divides a text into paragraphs, list items and headings, and puts each on one line. It
// omits code blocks, tables and link definitions.
func paragraphs(t text) []text {
	var (
		out    []text
		now    text
		fenced bool
		list   bool
	)
	end := func() {
		if now = now.trim(); len(now.b) > 0 {
			out = append(out, now)
		}
		now = text{}
	}
	for _, line := range t.lines() {
		s := string(line.b)
		blank := strings.TrimSpace(s) == ""
		item := listItem.FindString(s)
		switch {
		case fence.MatchString(s):
			end()
			fenced = !fenced
			continue
		case fenced:
			continue
		case blank, strings.HasPrefix(strings.TrimSpace(s), "|"), reading.MatchString(s):
			end()
			continue
		case item != "":
			end()
			list = true
			line = line.cut(len(item), len(s))
		case heading.MatchString(s):
			end()
			now = line.cut(len(heading.FindString(s)), len(s))
			end()
			list = false
			continue
		case indented.MatchString(s) && len(now.b) == 0 && !list:
			continue
		case !strings.HasPrefix(s, " "):
			list = list && len(now.b) > 0
		}
		if len(now.b) > 0 {
			now.add(' ', now.at[len(now.at)-1])
		}
		now.addText(line.cut(len(quote.FindString(string(line.b))), len(line.b)).trim())
	}
	end()
	return out
}

// markdown returns the paragraphs of a page, without code, link targets and emphasis marks.
func markdown(source []byte) []text {
	page := slice(source, 0, len(source)).replace(htmlComments, "")
	var out []text
	for _, p := range paragraphs(page) {
		p = withoutCode(p).replace(images, "").replace(links, "")
		out = append(out, p.replace(htmlTags, "").replace(emphasis, ""))
	}
	return out
}

// withoutCode replaces code spans, URLs, flags and qualified names with the placeholder.
func withoutCode(t text) text {
	return t.replace(codeSpans, placeholder).replace(urls, placeholder).replace(identifiers, placeholder)
}

// notes returns the paragraphs of a Helm NOTES.txt template.
func notes(source []byte) []text {
	var out []text
	for _, p := range paragraphs(slice(source, 0, len(source))) {
		out = append(out, withoutCode(p.replace(verbs, placeholder)))
	}
	return out
}

var yamlComment = regexp.MustCompile(`^(\s*)#(?: |$)|\s#\s`)

// yamlComments returns the comments of a YAML file. Comments on successive lines are one text.
func yamlComments(source []byte) []text {
	var out []text
	var now text
	for _, line := range append(slice(source, 0, len(source)).lines(), text{}) {
		m := yamlComment.FindSubmatchIndex(line.b)
		whole := m != nil && m[2] >= 0
		if !whole {
			out = append(out, paragraphs(now)...)
			now = text{}
		}
		if m != nil {
			now.addText(line.cut(m[1], len(line.b)))
			now.add('\n', line.at[len(line.at)-1])
		}
	}
	for i := range out {
		out[i] = withoutCode(out[i])
	}
	return out
}
