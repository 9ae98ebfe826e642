// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package rbac evaluates the RBAC objects of a cluster through an index by subject and namespace:
// the same decisions as kube-apiserver's own evaluator (k8s.io/kubernetes
// plugin/pkg/auth/authorizer/rbac, v1.37.1) at a cost that does not depend on how many bindings
// others have. A differential test holds the two against each other.
//
// [Index] holds the roles and bindings and follows their informers. [Evaluator] asks it, and
// knows the two additions: the annotation [tenant.ScopeAnnotation] of a ClusterRoleBinding
// limits its rules to the spaces or the callers of some tenants, and
// [tenant.ExpiresAnnotation] ends a binding. Without them nothing differs: a rule says what
// somebody may do, the boundary before it says where.
package rbac
