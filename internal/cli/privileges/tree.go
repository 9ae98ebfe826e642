// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package privileges

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubetenant/kubetenant/internal/cli/output"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// node is an entry in the tree that [Listing.WriteTree] prints.
type node struct {
	text, color string
	children    []node
}

// Brief removes the sources of aggregated roles, and the information that kubectl tenant created a
// binding.
func (l *Listing) Brief() {
	for i := range l.Roles {
		l.Roles[i].AggregatedFrom = nil
		for j := range l.Roles[i].Bindings {
			l.Roles[i].Bindings[j].CreatedByKubectl = false
		}
	}
}

// WriteTree prints a listing as a tree.
func (l *Listing) WriteTree(s *output.Screen) error {
	top := node{text: l.Identity.title()}
	top.add("", "groups: %s", strings.Join(l.Identity.Groups, ", "))
	for i := range l.Roles {
		top.children = append(top.children, l.Roles[i].node())
	}
	for i := range l.Grants {
		top.children = append(top.children, l.Grants[i].node())
	}
	for _, n := range l.Lines {
		top.add("", "line %d of the policy file", n)
	}
	for _, r := range l.Reviews {
		ruleNode := node{text: "rules reported by the server for namespace " + r.Namespace}
		if r.Incomplete {
			ruleNode.text += " (incomplete)"
		}
		for i := range r.Rules {
			ruleNode.add("", "%s", RuleText(&r.Rules[i]))
		}
		top.children = append(top.children, ruleNode)
	}
	if len(top.children) == 1 && len(l.Unread) == 0 {
		top.add(output.Faint, "no bindings, grants or policy lines")
	}
	root := node{text: fmt.Sprintf("cluster %s (%s)", l.Cluster, l.Server), color: output.Bold, children: []node{top}}
	return root.write(s, "", "")
}

func (i *Identity) title() string {
	text := strings.ToLower(i.Kind) + " " + i.Name
	if i.Kind == "ServiceAccount" {
		text = "service account " + i.Name
	}
	if i.Kind == "Tenant" {
		return text
	}
	if i.Tenant == "" {
		return text + ", tenant unknown: bindings that the boundary blocks are not marked"
	}
	return text + ", tenant " + i.Tenant
}

func (n *node) add(colour, format string, args ...any) {
	n.children = append(n.children, node{text: fmt.Sprintf(format, args...), color: colour})
}

func (h *IdentityRole) node() node {
	name := h.Name
	if h.Namespace != "" {
		name = h.Namespace + "/" + name
	}
	n := node{text: h.Kind + " " + name, color: output.Bold}
	switch {
	case h.Missing:
		n.text = n.text + " (missing: grants nothing)"
		n.color = output.Red
	case h.Unread:
		n.text += " (you may not read it)"
	}
	for _, b := range h.Bindings {
		text, colour := b.Scope, output.Green
		if b.Expires != "" {
			text += " until " + b.Expires
		}
		if b.HeldBack != "" {
			text = text + " (blocked: " + b.HeldBack + ")"
			colour = output.Red
		}
		namespaced := b.Name
		if b.Namespace != "" {
			namespaced = b.Namespace + "/" + namespaced
		}
		text += fmt.Sprintf(", by %s %s to %s", b.Kind, namespaced, b.Subject)
		if b.CreatedByKubectl {
			text += ", created by kubectl tenant"
		}
		n.add(colour, "%s", text)
	}
	if len(h.AggregatedFrom) > 0 {
		n.add(output.Faint, "aggregated from %s", strings.Join(h.AggregatedFrom, ", "))
	}
	if len(h.Rules) > 0 {
		rules := node{text: "rules"}
		for i := range h.Rules {
			rules.add("", "%s", RuleText(&h.Rules[i]))
		}
		n.children = append(n.children, rules)
	}
	return n
}

func (g *IdentityGrant) node() node {
	n := node{text: fmt.Sprintf("AccessGrant %s/%s of tenant %s", g.Namespace, g.Name, g.Owner), color: output.Bold}
	switch {
	case g.HeldBack != "":
		n.text = n.text + " (not valid: " + g.HeldBack + ")"
		n.color = output.Red
	case g.Expires != nil:
		n.text += " until " + g.Expires.UTC().Format(time.RFC3339)
	}
	for i := range g.To {
		n.add("", "%s", GrantRuleText(&g.To[i]))
	}
	return n
}

// GrantRuleText returns the text of an AccessGrant rule on one line.
func GrantRuleText(r *v1alpha1.AccessGrantRule) string {
	var resources []string
	for _, resource := range r.Resources {
		for _, group := range r.APIGroups {
			resources = append(resources, strings.TrimSuffix(resource+"."+group, "."))
		}
	}
	text := strings.Join(r.Verbs, ", ") + ": " + strings.Join(resources, ", ")
	if len(r.ResourceNames) > 0 {
		text += fmt.Sprintf(" (only %s)", strings.Join(r.ResourceNames, ", "))
	}
	return text
}

// minTextWidth is the minimum width of a text in columns, even in a deeply nested node or on a
// narrow terminal.
const minTextWidth = 24

// write prints the node after the prefix lead. It prints further lines and the children after the
// prefix rest.
func (n *node) write(s *output.Screen, lead, rest string) error {
	below := "│ "
	if len(n.children) == 0 {
		below = "  "
	}
	room := s.Width - max(utf8.RuneCountInString(lead), utf8.RuneCountInString(rest+below))
	for i, line := range wrap(n.text, max(room, minTextWidth)) {
		before := lead
		if i > 0 {
			before = rest + below
		}
		if _, err := fmt.Fprintln(s, before+s.Paint(n.color, output.Safe(line))); err != nil {
			return err
		}
	}
	for i := range n.children {
		branch, under := "├─ ", "│  "
		if i == len(n.children)-1 {
			branch, under = "└─ ", "   "
		}
		if err := n.children[i].write(s, rest+branch, rest+under); err != nil {
			return err
		}
	}
	return nil
}

// wrap breaks text at spaces into lines of at most width columns. A longer word is a line of its
// own.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}
