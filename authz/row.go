package authz

// A Row is the row of the boundary's table by which a request was delegated, for whoever explains a
// decision. What is denied has a [Reason] instead.
type Row string

// The rows.
const (
	RowSystem          Row = "system tenant: anything"
	RowUnbound         Row = "no tenant: open to everybody"
	RowPath            Row = "tenant: discovery, schemas and open paths"
	RowOwn             Row = "tenant: in a namespace of its own"
	RowCreateNamespace Row = "tenant: a new Namespace, which admission gives it"
	RowPinned          Row = "tenant: over all namespaces, limited to its own"
	RowSelfReview      Row = "tenant: a review of itself"
	RowShared          Row = "tenant: a shared cluster-scoped resource, to read"
	RowAbout           Row = "tenant: an object that is about it"
	RowImpersonation   Row = "tenant: whom it may impersonate"
	RowClusterRead     Row = "tenant path: the system tenant reads what is in no space"
)
