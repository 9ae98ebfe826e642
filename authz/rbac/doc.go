// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package rbac evaluates the RBAC objects of a cluster through an index by subject and namespace.
// It makes the same decisions as kube-apiserver's own evaluator (k8s.io/kubernetes
// plugin/pkg/auth/authorizer/rbac, v1.37.1). Its cost does not depend on the number of bindings of
// other subjects. A differential test compares the two.
//
// [Index] contains the roles and bindings and follows their informers. [Evaluator] decides by the
// index. It supports two additional annotations of bindings. [tenant.ScopeAnnotation] limits the
// rules of a ClusterRoleBinding to the objects of some tenants or of the caller's own tenant.
// [tenant.ExpiresAnnotation] ends a binding. Without these annotations, the meaning of RBAC does
// not change. The boundary runs first and limits the caller to its tenant.
package rbac
