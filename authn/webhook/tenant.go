// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/lazy"

	"github.com/kubetenant/kubetenant/tenant"
)

// Tenant returns the tenant of an identity that the service returned.
type Tenant func(ctx context.Context, u user.Info) (tenant.ID, error)

// errNotOne reports that an extra does not have exactly one value, or that an expression does not
// return a string.
var errNotOne = errors.New("must have exactly one value")

// Value returns a Tenant that returns id for every identity.
func Value(id tenant.ID) Tenant {
	return func(context.Context, user.Info) (tenant.ID, error) { return id, nil }
}

// Extra returns a Tenant that parses the only value of an extra. It fails if the extra does not
// have exactly one value.
func Extra(key string) Tenant {
	return func(_ context.Context, u user.Info) (tenant.ID, error) {
		values := u.GetExtra()[key]
		if len(values) != 1 {
			return tenant.ID{}, errNotOne
		}
		return tenant.Parse(values[0])
	}
}

// Compile returns a Tenant that evaluates a CEL expression, which must return a string. The
// variable user has the fields username, uid, groups and extra, as in upstream's user validation
// rules.
func Compile(compiler authenticationcel.Compiler, text string) (Tenant, error) {
	compiled, err := compiler.CompileUserExpression(expression(text))
	if err != nil {
		return nil, err
	}
	mapper := authenticationcel.NewUserMapper([]authenticationcel.CompilationResult{compiled})
	return func(ctx context.Context, u user.Info) (tenant.ID, error) {
		results, err := mapper.EvalUser(ctx, variable(u))
		if err != nil || len(results) != 1 {
			return tenant.ID{}, errors.Join(errNotOne, err)
		}
		name, ok := results[0].EvalResult.Value().(string)
		if !ok {
			return tenant.ID{}, errNotOne
		}
		return tenant.Parse(name)
	}, nil
}

type expression string

func (e expression) GetExpression() string      { return string(e) }
func (e expression) ReturnTypes() []*celgo.Type { return []*celgo.Type{celgo.StringType} }

// variable returns the value of the CEL variable user.
func variable(u user.Info) *lazy.MapValue {
	value := lazy.NewMapValue(types.NewObjectType("kubernetes.UserInfo"))
	field := func(name string, content any) {
		value.Append(name, func(*lazy.MapValue) ref.Val { return types.DefaultTypeAdapter.NativeToValue(content) })
	}
	field("username", u.GetName())
	field("uid", u.GetUID())
	field("groups", u.GetGroups())
	field("extra", u.GetExtra())
	return value
}
