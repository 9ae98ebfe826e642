// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"context"
	_ "embed" // the roles and bindings of every cluster
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubetenant/kubetenant/internal/simulate/simulator"
)

// bootstrapPolicy contains the roles and bindings that every kube-apiserver creates
// (k8s.io/kubernetes plugin/pkg/auth/authorizer/rbac/bootstrappolicy, v1.37.1), except those of the
// controllers. Aggregated roles contain their rules. Each line is a JSON object. A test in the
// server's module compares the file with upstream.
//
//go:embed bootstrap.jsonl
var bootstrapPolicy []byte

// Bootstrap returns the roles and bindings that every cluster contains.
func Bootstrap() ([]runtime.Object, error) {
	var all []runtime.Object
	for raw := range bytes.Lines(bootstrapPolicy) {
		obj, err := Decode(&runtime.RawExtension{Raw: raw})
		if err != nil {
			return nil, fmt.Errorf("bootstrap policy: %w", err)
		}
		all = append(all, obj)
	}
	return all, nil
}

// Snapshot returns the objects on which the decisions of a scenario depend, including the built-in
// roles and bindings. If s.Delegate is not RBAC, the roles and bindings grant nothing. The returned
// authorizer allows everything if s.Delegate is Allow, and is nil otherwise.
func Snapshot(s *Scenario) (*simulator.Snapshot, authorizer.Authorizer, error) {
	snapshot := simulator.NewSnapshot()
	all, err := Bootstrap()
	if err != nil {
		return nil, nil, err
	}
	rawObjects, err := ClusterObjects(s)
	if err != nil {
		return nil, nil, err
	}
	for i := range rawObjects {
		obj, err := Decode(&rawObjects[i])
		if err != nil {
			return nil, nil, fmt.Errorf("object %d: %w", i, err)
		}
		all = append(all, obj)
	}
	for _, obj := range all {
		if err := snapshot.Add(obj); err != nil {
			return nil, nil, err
		}
	}
	switch s.Delegate {
	case DelegateAllow:
		snapshot.DropRBAC()
		allow := func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
			return authorizer.DecisionAllow, "allowed by the delegate of the scenario", nil
		}
		return snapshot, authorizer.AuthorizerFunc(allow), nil
	case DelegateNoOpinion:
		snapshot.DropRBAC()
	}
	return snapshot, nil, nil
}
