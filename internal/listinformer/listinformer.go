// Package listinformer makes informers that list before they watch.
package listinformer

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// New returns an informer of a resource in all namespaces, without resync, that begins with a list at resourceVersion=0. One of client-go's
// begins with a streaming list (WatchList, KEP-3157) where that is enabled: of a resource without writes the bookmark that ends it may come
// from a timer, up to 1.25 s later (k8s.io/apiserver/pkg/storage/cacher/cacher.go, dispatchEvents, v0.37.1). It is for resources that
// a server waits for before it is ready, and that are few: the list is held as a whole.
func New(client dynamic.Interface, of schema.GroupVersionResource) cache.SharedIndexInformer {
	return dynamicinformer.NewDynamicSharedInformerFactory(listing{client}, 0).ForResource(of).Informer()
}

type listing struct{ dynamic.Interface }

// IsWatchListSemanticsUnSupported implements what reflectors ask of clients (k8s.io/client-go/util/watchlist).
func (listing) IsWatchListSemanticsUnSupported() bool { return true }
