// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
)

// WarnRestored warns that an update removed keys and that the server restored them. It sends one
// warning for each key, in sorted order. kind is "label" or "annotation". path is the path of the
// template that has the keys, or "" for the object itself.
//
// Only users of kubectl are warned. A controller that sends whole objects did not have the keys and
// would get the same warning on every update. For the same reason, users of kubectl replace are not
// warned.
func WarnRestored(ctx context.Context, a admission.Attributes, path, kind string, keys ...string) {
	if !isByKubectl(a) {
		return
	}
	if path != "" {
		path += ": "
	}
	for _, key := range slices.Sorted(slices.Values(keys)) {
		warning.AddWarning(ctx, "", path+"the "+kind+" "+key+" is managed by the server and was not removed")
	}
}

// isByKubectl reports whether a user of kubectl sent an update. It checks the default field
// managers of kubectl's commands.
func isByKubectl(a admission.Attributes) bool {
	options, ok := a.GetOperationOptions().(*metav1.UpdateOptions)
	return ok && strings.HasPrefix(options.FieldManager, "kubectl") && options.FieldManager != "kubectl-replace"
}
