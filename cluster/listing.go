package cluster

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// listing is a client whose informers list the latest state and watch from there. Others are streamed it (KEP-3157), whose end is a bookmark:
// of a kind that nobody writes it may come from a timer, up to 1.25 s later (k8s.io/apiserver/pkg/storage/cacher/cacher.go, dispatchEvents,
// v0.37.1), and servers wait for our kinds before they are ready.
type listing struct{ dynamic.Interface }

func newListing(config *rest.Config, connection *http.Client) (dynamic.Interface, error) {
	client, err := dynamic.NewForConfigAndClient(config, connection)
	return listing{client}, err
}

// IsWatchListSemanticsUnSupported implements what reflectors ask a client (k8s.io/client-go/util/watchlist).
func (listing) IsWatchListSemanticsUnSupported() bool { return true }

// Resource implements [dynamic.Interface].
func (l listing) Resource(of schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return listingResource{l.Interface.Resource(of)}
}

type listingResource struct {
	dynamic.NamespaceableResourceInterface
}

func (r listingResource) Namespace(name string) dynamic.ResourceInterface {
	return listingObjects{r.NamespaceableResourceInterface.Namespace(name)}
}

type listingObjects struct{ dynamic.ResourceInterface }

// List lists the latest state where any would do, as a reflector asks: a server that is behind would show one that is past.
func (o listingObjects) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if options.ResourceVersion == "0" {
		options.ResourceVersion = ""
	}
	return o.ResourceInterface.List(ctx, options)
}
