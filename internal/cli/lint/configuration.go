package lint

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	configv1alpha1 "github.com/kubetenant/kubetenant/config/v1alpha1"
	"github.com/kubetenant/kubetenant/internal/stack"
)

// configuration returns the problems of a TenancyConfiguration, and those of
// the files that it names.
func configuration(ctx context.Context, path string, data []byte) ([]Problem, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return placed(path, []Problem{syntax(err)}), nil
	}
	config, err := configv1alpha1.Load(path)
	if err != nil {
		return placed(path, problemsOf(&root, path, err)), nil
	}
	var found []Problem
	for _, text := range config.Warnings() {
		p := at(&root, text)
		p.Warning = true
		found = append(found, p)
	}
	named, err := namedFiles(ctx, config)
	if err != nil {
		return nil, err
	}
	found = append(found, named...)
	if len(named) == 0 || !hasError(named) {
		if err := stack.Check(ctx, path); err != nil {
			found = append(found, problemsOf(&root, path, err)...)
		}
	}
	return placed(path, found), nil
}

func hasError(found []Problem) bool {
	for _, p := range found {
		if !p.Warning {
			return true
		}
	}
	return false
}

// namedFiles returns the problems of the files that a configuration names. One that is missing is
// the configuration's own.
func namedFiles(ctx context.Context, config *configv1alpha1.TenancyConfiguration) ([]Problem, error) {
	var all []Problem
	add := func(path string, found []Problem) { all = append(all, placed(path, found)...) }
	for _, s := range config.Authentication.Sources {
		kind, file := Tokens, s.TokenFile
		if s.BasicAuthFile != nil {
			kind, file = Passwords, s.BasicAuthFile
		}
		if file == nil {
			continue
		}
		data, err := os.ReadFile(file.Path) // the operator's own configuration names it
		if err != nil {
			continue
		}
		found, err := credentials(ctx, data, kind, file)
		if err != nil {
			return nil, err
		}
		add(file.Path, append(found, readable(file.Path)...))
	}
	if config.Authorization.ABAC != nil {
		if data, err := os.ReadFile(config.Authorization.ABAC.Path); err == nil {
			add(config.Authorization.ABAC.Path, policy(data))
		}
	}
	if r := config.Authentication.Revocation; r != nil {
		if data, err := os.ReadFile(r.Path); err == nil {
			add(r.Path, revocation(r.Path, data))
		}
	}
	return all, nil
}

// revocation returns the problems of a Revocation.
func revocation(path string, data []byte) []Problem {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return []Problem{syntax(err)}
	}
	if _, err := configv1alpha1.DecodeRevocation(data); err != nil {
		return problemsOf(&root, path, err)
	}
	return nil
}

// keyTwice is what the YAML parser says of a key at the top.
var keyTwice = regexp.MustCompile(`line (\d+): key ("[^"]*") already set in map`)

var yamlLine = regexp.MustCompile(`line (\d+)`)

// syntax returns what a YAML parser says.
func syntax(err error) Problem {
	p := Problem{
		Text: strings.TrimPrefix(err.Error(), "yaml: "),
		Fix:  "check the indentation, and that strings with : or # in them are in quotes",
	}
	if m := yamlLine.FindStringSubmatch(p.Text); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
	}
	return p
}

// problemsOf returns each of the problems that err is made of, at its field.
func problemsOf(root *yaml.Node, path string, err error) []Problem {
	var all utilerrors.Aggregate
	if !errors.As(err, &all) {
		if twice := keyTwice.FindStringSubmatch(err.Error()); twice != nil {
			line, _ := strconv.Atoi(twice[1])
			return []Problem{{Line: line, Text: "the key " + twice[2] + " stands there twice", Fix: "write it once"}}
		}
		return []Problem{at(root, strings.TrimPrefix(err.Error(), path+": "))}
	}
	var found []Problem
	for _, e := range utilerrors.Flatten(all).Errors() {
		p := at(root, e.Error())
		p.Fix = configFix(e)
		found = append(found, p)
	}
	return found
}

// configFix says what to write, by what is wrong.
func configFix(err error) string {
	var at *field.Error
	if errors.As(err, &at) {
		switch at.Type {
		case field.ErrorTypeRequired:
			return "add it"
		case field.ErrorTypeDuplicate:
			return "write it once"
		case field.ErrorTypeNotSupported:
			return "write one of the values that are listed"
		}
	}
	if strings.Contains(err.Error(), "unknown field") {
		return "check the spelling: docs/configuration.md lists all fields"
	}
	return ""
}

var (
	// unknown is what strict decoding says of a field.
	unknown = regexp.MustCompile(`(?:unknown|duplicate) field "([^"]+)"`)
	// path is what a field error begins with.
	fieldPath = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9.\[\]_/"-]*): `)
	sourceOf  = regexp.MustCompile(`^source "([^"]+)"`)
	step      = regexp.MustCompile(`[^.\[\]]+`)
)

// at returns a problem at the place of the field that its text begins with.
func at(root *yaml.Node, text string) Problem {
	p := Problem{Line: 1, Column: 1, Text: text}
	node := root
	if len(root.Content) > 0 {
		node = root.Content[0]
	}
	where := ""
	if m := unknown.FindStringSubmatch(text); m != nil {
		where = m[1]
	} else if m := fieldPath.FindStringSubmatch(text); m != nil {
		where = m[1]
	} else if m := sourceOf.FindStringSubmatch(text); m != nil {
		if n := named(node, m[1]); n != nil {
			p.Line, p.Column = n.Line, n.Column
		}
		return p
	}
	for _, name := range step.FindAllString(where, -1) {
		key, value := child(node, strings.Trim(name, `"`))
		if value == nil {
			break
		}
		p.Line, p.Column, node = key.Line, key.Column, value
	}
	return p
}

// child returns what a step of a path leads to, and where it stands.
func child(node *yaml.Node, name string) (key, value *yaml.Node) {
	if node.Kind == yaml.SequenceNode {
		if i, err := strconv.Atoi(name); err == nil && i < len(node.Content) {
			return node.Content[i], node.Content[i]
		}
		return nil, nil
	}
	for i := 0; i+1 < len(node.Content) && node.Kind == yaml.MappingNode; i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i], node.Content[i+1]
		}
	}
	return nil, nil
}

// named returns the source of a name.
func named(root *yaml.Node, name string) *yaml.Node {
	_, authentication := child(root, "authentication")
	if authentication == nil {
		return nil
	}
	_, sources := child(authentication, "sources")
	if sources == nil {
		return nil
	}
	for _, s := range sources.Content {
		if _, value := child(s, "name"); value != nil && value.Value == name {
			return s
		}
	}
	return nil
}
