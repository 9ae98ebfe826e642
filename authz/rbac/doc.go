// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

// Package rbac evaluates the RBAC objects of a cluster with an index by subject and namespace. It
// makes the same decisions as the evaluator of kube-apiserver (k8s.io/kubernetes
// plugin/pkg/auth/authorizer/rbac, v1.37.1), which a differential test checks. Its cost does not
// depend on how many bindings other subjects have.
//
// [Index] contains the roles and bindings and follows their informers. [Evaluator] decides from the
// index. It supports two additional annotations of bindings. [tenant.ScopeAnnotation] limits the
// rules of a ClusterRoleBinding to the objects of listed tenants or of the caller's own tenant.
// [tenant.ExpiresAnnotation] specifies when a binding expires. [DerivedRole] adds roles without a
// binding. Without these additions, the meaning of RBAC does not change. The boundary runs first
// and limits the caller to its tenant.
package rbac
