// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubetenant/kubetenant/plugins"
)

// TestCheckUnchanged checks that an error names every annotation that was added, changed or
// removed.
func TestCheckUnchanged(t *testing.T) {
	oldObj := &metav1.ObjectMeta{Annotations: map[string]string{"changed": "1", "removed": "1", "same": "1"}}
	newObj := &metav1.ObjectMeta{Annotations: map[string]string{"changed": "2", "added": "1", "same": "1"}}
	err := plugins.CheckUnchanged(oldObj, newObj, "added", "changed", "removed", "same", "never")
	const want = "[the annotation added is immutable, the annotation changed is immutable, " +
		"the annotation removed is immutable]"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if err := plugins.CheckUnchanged(oldObj, oldObj, "changed", "never"); err != nil {
		t.Error(err)
	}
}
