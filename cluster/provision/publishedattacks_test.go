// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package provision_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubetenant/kubetenant/cluster/publication"
	"github.com/kubetenant/kubetenant/tenant"
	"github.com/kubetenant/kubetenant/tenant/v1alpha1"
)

// hashOf returns the hash of the content that the given object in the namespace shared has.
func (w *fixture) hashOf(text string) string {
	w.t.Helper()
	u := w.parse(text)
	content, err := (&publication.Rules{}).Content(u, nil)
	w.must(err)
	return content.Hash
}

// TestEarlierContent checks that an author without the rights to publish cannot restore earlier
// content. The earlier content was confirmed on the Publication, and later content on the source.
func TestEarlierContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		w.sourceBy(authority, false)
		w.publish(func(p *v1alpha1.Publication) {
			p.Annotations = map[string]string{tenant.PublishedAnnotation: w.hashOf(authority)}
		})
		w.expectObjects("confirmed on the Publication", "acme--web", "configmaps/ca  first")
		w.source(changed)
		w.expectObjects("confirmed on the source", "acme--web", "configmaps/ca  second")
		back := strings.Replace(authority, "labels:",
			`annotations: { "kubetenant.dev/published": "`+w.hashOf(changed)+`" }, labels:`, 1)
		w.sourceBy(back, false)
		w.expectObjects("the earlier content", "acme--web", "configmaps/ca  second")
		w.publishedIs("the earlier content", "AuthorNotChecked 1/0/0/0")
	})
}

// TestUnseenNamespace checks that an object in the webhook service's own namespace is not
// published, because the service does not check all writes in this namespace.
func TestUnseenNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.stop()
		w.unseen = "shared"
		w.start()
		w.define()
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		w.source(strings.Replace(authority, "labels:", `annotations: { "kubetenant.dev/publish": "*" }, labels:`, 1))
		w.publish(unchanged)
		w.expectObjects("an unseen source", "acme--web")
		w.publishedIs("an unseen source", "SourceRefused 1/0/0/0")
		list, err := w.dynamic.Resource(publicationResource).List(t.Context(), metav1.ListOptions{})
		w.must(err)
		if len(list.Items) != 1 {
			t.Errorf("an unseen annotation created a Publication: %v", list.Items)
		}
	})
}

// TestUnconfirmedAnnotation checks that no Publication is created for an annotation that
// admission did not check. For example, a tenant may have owned the namespace when the annotation
// was set.
func TestUnconfirmedAnnotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		w.sourceBy(strings.Replace(authority, "labels:", `annotations: { "kubetenant.dev/publish": "*" }, labels:`, 1), false)
		w.settle()
		list, err := w.dynamic.Resource(publicationResource).List(t.Context(), metav1.ListOptions{})
		w.must(err)
		if len(list.Items) != 0 {
			t.Errorf("the Publications are %v", list.Items)
		}
	})
}

// TestPrunedAfterRestart checks that a new leader deletes the copies of a deleted Publication
// even if it does not know the Publication's content.
func TestPrunedAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		for i := range 21 {
			w.namespace(fmt.Sprint("acme--", i), "acme", nil)
		}
		w.source(authority)
		w.publish(unchanged)
		w.source("")
		w.stop()
		w.start()
		w.expectObjects("after a restart", "acme--7", "configmaps/ca  first")
		w.publish(func(p *v1alpha1.Publication) { p.DeletionTimestamp = new(metav1.Now()) })
		time.Sleep(time.Minute)
		synctest.Wait()
		w.expectObjects("after the deletion", "acme--7")
		u, err := w.dynamic.Resource(publicationResource).Get(t.Context(), "ca", metav1.GetOptions{})
		w.must(err)
		if len(u.GetFinalizers()) > 0 {
			t.Errorf("the deleted Publication has the finalizers %s", u.GetFinalizers())
		}
	})
}

// TestExpiredPages checks that the drift check continues a list whose continue token has expired.
func TestExpiredPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		w.namespace("acme--web", "acme", nil)
		w.source(authority)
		w.publish(unchanged)
		var lists atomic.Int32
		prepend(&w.dynamic.Fake, "list", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetNamespace() != "" || lists.Add(1)%2 == 0 { // the second request continues the list
				return false, nil, nil
			}
			err := apierrors.NewResourceExpired("the token is too old")
			err.ErrStatus.Code = http.StatusGone
			err.ErrStatus.Continue = "later"
			return true, nil, err
		})
		copies := w.dynamic.Resource(configMaps).Namespace("acme--web")
		u, err := copies.Get(t.Context(), "ca", metav1.GetOptions{})
		w.must(err)
		w.must(unstructured.SetNestedField(u.Object, "forged", "data", "who"))
		_, err = copies.Update(t.Context(), u, metav1.UpdateOptions{})
		w.must(err)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		w.expectObjects("after an expired page", "acme--web", "configmaps/ca  first")
		if lists.Load() < 2 {
			t.Error("no page has expired")
		}
	})
}

// TestManyNamespacesOfOneTenant checks that a large object is published to other tenants even if
// one tenant has many namespaces.
func TestManyNamespacesOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.define()
		w.addSharedNamespace()
		w.namespace("globex--web", "globex", nil)
		for i := range 300 {
			w.namespace(fmt.Sprint("acme--", i), "acme", nil)
		}
		w.source(strings.Replace(authority, "first", strings.Repeat("x", 1<<20), 1))
		w.writePublication("ca", unchanged)
		// The test does not wait for all copies, because this is slow with the race detector.
		until(func() bool { return len(w.objects("globex--web")) > 0 })
		if got := w.objects("globex--web"); len(got) != 1 {
			t.Errorf("another tenant has %d copies", len(got))
		}
	})
}
