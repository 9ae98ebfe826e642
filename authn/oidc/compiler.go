// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"reflect"
	"sync"

	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
)

// NewCompiler returns a compiler that compiles each claims expression once. Ten thousand issuers
// with the same mapping share one compiled program. The compiler retains all compiled programs. It
// is safe for concurrent use.
func NewCompiler(next authenticationcel.Compiler) authenticationcel.Compiler {
	return &compiler{next: next, claims: map[compileKey]authenticationcel.CompilationResult{}}
}

type compiler struct {
	next   authenticationcel.Compiler
	mu     sync.Mutex
	claims map[compileKey]authenticationcel.CompilationResult
}

// compileKey identifies a result by the text and the kind of the expression. The kind determines
// the return type.
type compileKey struct {
	kind reflect.Type
	text string
}

// CompileClaimsExpression implements [authenticationcel.Compiler].
func (c *compiler) CompileClaimsExpression(
	e authenticationcel.ExpressionAccessor,
) (authenticationcel.CompilationResult, error) {
	key := compileKey{reflect.TypeOf(e), e.GetExpression()}
	c.mu.Lock()
	defer c.mu.Unlock()
	result, known := c.claims[key]
	if !known {
		var err error
		if result, err = c.next.CompileClaimsExpression(e); err != nil {
			return result, err
		}
		c.claims[key] = result
	}
	result.ExpressionAccessor = e // contains the extra key or the message of this expression
	return result, nil
}

// CompileUserExpression implements [authenticationcel.Compiler].
func (c *compiler) CompileUserExpression(
	e authenticationcel.ExpressionAccessor,
) (authenticationcel.CompilationResult, error) {
	return c.next.CompileUserExpression(e)
}
