// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import _ "embed" // for the schema

//go:embed schema.json
var schema string

// Schema returns the JSON schema of the configuration file. The schema is generated from the types
// of this package. It accepts every file that a server accepts, except a file that sets an enum
// field to an empty string. It also accepts some files that a server rejects. [Decode] reports
// every problem of a file.
func Schema() []byte { return []byte(schema) }
