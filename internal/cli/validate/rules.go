// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// rules evaluates the CEL rules of the schema (x-kubernetes-validations) as the API server does
// when an object is created (k8s.io/apiextensions-apiserver pkg/apiserver/schema/cel, v0.37.1).
func (k *definition) rules(d *document, value map[string]any) []Finding {
	e := &evaluator{
		base:     environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()),
		document: d,
		describe: k.described,
	}
	e.check(common.WithTypeAndObjectMeta(k.schema), value, "")
	return e.found
}

// evaluator evaluates the rules of a schema and collects the violations.
type evaluator struct {
	base     *environment.EnvSet
	document *document
	describe func(path string) string
	found    []Finding
}

// check evaluates the rules of a schema and of its subschemas. It also checks that a list of type
// set has no duplicates.
func (e *evaluator) check(s *spec.Schema, value any, path string) {
	if value == nil {
		return
	}
	e.evaluate(&openapi.Schema{Schema: s}, value, path)
	switch value := value.(type) {
	case []any:
		kind, _ := s.Extensions.GetString("x-kubernetes-list-type")
		for i, item := range value {
			if kind == "set" && slices.Contains(value[:i], item) {
				where := fmt.Sprintf("%s[%d]", path, i)
				e.found = append(e.found, e.document.at(where, "is in the list already", "write it once"))
			}
			if s.Items != nil && s.Items.Schema != nil {
				e.check(s.Items.Schema, item, fmt.Sprintf("%s[%d]", path, i))
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			where := strings.TrimPrefix(path+"."+name, ".")
			if property, ok := s.Properties[name]; ok {
				e.check(&property, value[name], where)
			} else if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
				e.check(s.AdditionalProperties.Schema, value[name], where)
			}
		}
	}
}

// evaluate evaluates the rules of one schema. It skips rules that use oldSelf, because there is no
// old object.
func (e *evaluator) evaluate(s *openapi.Schema, value any, path string) {
	rules := slices.DeleteFunc(slices.Clone(s.XValidations()), func(rule common.ValidationRule) bool {
		return strings.Contains(rule.Rule(), "oldSelf")
	})
	if len(rules) == 0 {
		return
	}
	env, err := environmentOf(e.base, s, path == "")
	if err != nil {
		e.found = append(e.found, e.document.at(path, err.Error(), ""))
		return
	}
	self := map[string]any{"self": common.UnstructuredToVal(value, s)}
	for _, rule := range rules {
		valid, err := evaluate(env, rule.Rule(), self)
		where := strings.TrimPrefix(path+rule.FieldPath(), ".")
		switch {
		case err != nil:
			e.found = append(e.found, e.document.at(where, err.Error(), e.describe(where)))
		case !valid:
			e.found = append(e.found, e.document.at(where, rule.Message(), e.describe(where)))
		}
	}
}

func environmentOf(base *environment.EnvSet, s *openapi.Schema, root bool) (*cel.Env, error) {
	declared := common.SchemaDeclType(s, root)
	if declared == nil {
		return nil, fmt.Errorf("the rules of a schema of type %q cannot be evaluated", s.Type())
	}
	declared = declared.MaybeAssignTypeName("selfType")
	extended, err := base.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable("self", declared.CelType())},
		DeclTypes:         []*apiservercel.DeclType{declared},
	})
	if err != nil {
		return nil, err
	}
	return extended.Env(environment.StoredExpressions)
}

func evaluate(env *cel.Env, rule string, self map[string]any) (bool, error) {
	ast, issues := env.Compile(rule)
	if err := issues.Err(); err != nil {
		return false, err
	}
	program, err := env.Program(ast)
	if err != nil {
		return false, err
	}
	result, _, err := program.Eval(self)
	return result == types.True, err
}
