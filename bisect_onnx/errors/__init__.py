"""Every exception this package raises on purpose, with the exit status each ends the program with.

One module per subject, in the order of the tree; all names are here.

BisectOnnxError
├── UsageError (2)                        bad usage or unreadable input
│   ├── ModelFileError                    an ONNX file cannot be read
│   │   ├── ModelNotFoundError            nothing there, or a folder
│   │   ├── NotAnOnnxFileError            garbage, empty, cut short, another format
│   │   └── ExternalDataError             its weights file is missing or too short
│   ├── RuntimeOptionError                an option of the candidate's runtime
│   │   ├── UnknownProviderError          not in this build
│   │   ├── UnknownSessionOptionError
│   │   ├── SessionOptionValueError
│   │   ├── OptimizationLevelError
│   │   └── CustomOpsError                an operator library that does not load
│   ├── FeedsError                        the inputs do not fit the model
│   │   ├── FeedsNotFoundError
│   │   ├── FeedsFormatError              a kind of file or object we do not read
│   │   ├── FeedsUnreadableError
│   │   ├── FeedsNeedPickleError          object arrays
│   │   ├── FeedNamesError                missing, extra or misnamed
│   │   ├── FeedCountError                a tuple of another length than the model has inputs
│   │   ├── FeedShapeError
│   │   ├── FeedDtypeError
│   │   ├── EmptyFeedError                an axis of length zero
│   │   ├── SamplesError                  no several samples can be made of them, or not here
│   │   ├── ShapeOptionError              --shape names no input, or another rank
│   │   ├── RandomFeedError               nothing sensible can be drawn for this type
│   │   ├── InputPairingError             candidate's and reference's inputs cannot be told apart
│   │   └── FeedsDoNotFitModuleError      arrays and forward arguments do not match
│   ├── CommandNotInstalledError          only capture runs here
│   ├── KeepListToleranceError            --keep-list without the tolerance that it is about
│   ├── OutputPathError                   a file of ours cannot go where it was asked to
│   ├── OpeningError                      REF, the side that is right, cannot be opened
│   │   ├── ReferenceNotFoundError        no such file or package
│   │   ├── ReferenceFormError            the text or object is no form of REF
│   │   ├── ReferenceImportError          the user's file does not import
│   │   ├── FactoryNotFoundError          it imports, but has no such attribute
│   │   ├── FactoryFailedError            the factory raised
│   │   ├── FactoryResultError            the factory returned something else than a module
│   │   ├── ReferenceUnreadableError      a model file that its library cannot read
│   │   ├── UninitializedModuleError      lazy parameters
│   │   ├── SubmoduleNotFoundError        --module names no part of the reference
│   │   └── SubmoduleNotCalledError       a run of the whole does not call it
│   ├── CandidateValuesError              a capture that cannot stand for the candidate
│   ├── RecordingError                    recorded activations that cannot be used
│   └── WeightsError                      --weights cannot be loaded into the module
│       ├── WeightsNotFoundError
│       ├── WeightsFormatError            not a state dict, or a kind of file we do not read
│       ├── WeightsUnreadableError
│       ├── WeightsNeedPickleError        more than tensors inside; names --unsafe-load
│       ├── WeightsMismatchError          keys or shapes do not match
│       └── WeightsNotApplicableError     the reference carries its own weights
└── RuntimeTroubleError (3)               a runtime failed, or no answer was possible
    ├── ProviderNotGrantedError           the session runs without the provider that was asked for
    ├── ModelNotLoadedError               the runtime refuses the model
    ├── RuntimeFailedError                the runtime loaded a model and failed while it ran it
    ├── RuntimeNotInstalledError          the adapter exists, its library does not
    ├── TemporarySpaceError               no room for the weights that probes share
    ├── SubmodulePartError                the submodule's part of the file was not found
    ├── SampleFailedError                 a side failed on one of several samples
    ├── DemoNotBuiltError                 the demo's files could not be written or exported
    ├── ReferenceFailedError              the reference's forward raised
    └── ReferenceNotRepeatableError       a second pass made other values
"""

from bisect_onnx.errors.base import BisectOnnxError, RuntimeTroubleError, UsageError, listing, page
from bisect_onnx.errors.candidate import (
    CommandNotInstalledError,
    CustomOpsError,
    ExternalDataError,
    ModelFileError,
    ModelNotFoundError,
    ModelNotLoadedError,
    NotAnOnnxFileError,
    OptimizationLevelError,
    ProviderNotGrantedError,
    RuntimeFailedError,
    RuntimeNotInstalledError,
    RuntimeOptionError,
    SessionOptionValueError,
    UnknownProviderError,
    UnknownSessionOptionError,
)
from bisect_onnx.errors.feeds import (
    FEED_FORMS,
    EmptyFeedError,
    FeedCountError,
    FeedDtypeError,
    FeedNamesError,
    FeedsDoNotFitModuleError,
    FeedsError,
    FeedsFormatError,
    FeedShapeError,
    FeedsNeedPickleError,
    FeedsNotFoundError,
    FeedsUnreadableError,
    InputPairingError,
    RandomFeedError,
    SampleFailedError,
    SamplesError,
    ShapeOptionError,
)
from bisect_onnx.errors.output import DemoNotBuiltError, KeepListToleranceError, OutputPathError, TemporarySpaceError
from bisect_onnx.errors.reference import (
    FACTORY_RESULTS,
    REFERENCE_FORMS,
    CandidateValuesError,
    FactoryFailedError,
    FactoryNotFoundError,
    FactoryResultError,
    OpeningError,
    RecordingError,
    ReferenceFailedError,
    ReferenceFormError,
    ReferenceImportError,
    ReferenceNotFoundError,
    ReferenceNotRepeatableError,
    ReferenceUnreadableError,
    SubmoduleNotCalledError,
    SubmoduleNotFoundError,
    SubmodulePartError,
    UninitializedModuleError,
)
from bisect_onnx.errors.weights import (
    WeightsError,
    WeightsFormatError,
    WeightsMismatchError,
    WeightsNeedPickleError,
    WeightsNotApplicableError,
    WeightsNotFoundError,
    WeightsUnreadableError,
)

__all__ = [
    "FACTORY_RESULTS",
    "FEED_FORMS",
    "REFERENCE_FORMS",
    "BisectOnnxError",
    "CandidateValuesError",
    "CommandNotInstalledError",
    "CustomOpsError",
    "DemoNotBuiltError",
    "EmptyFeedError",
    "ExternalDataError",
    "FactoryFailedError",
    "FactoryNotFoundError",
    "FactoryResultError",
    "FeedCountError",
    "FeedDtypeError",
    "FeedNamesError",
    "FeedShapeError",
    "FeedsDoNotFitModuleError",
    "FeedsError",
    "FeedsFormatError",
    "FeedsNeedPickleError",
    "FeedsNotFoundError",
    "FeedsUnreadableError",
    "InputPairingError",
    "KeepListToleranceError",
    "ModelFileError",
    "ModelNotFoundError",
    "ModelNotLoadedError",
    "NotAnOnnxFileError",
    "OpeningError",
    "OptimizationLevelError",
    "OutputPathError",
    "ProviderNotGrantedError",
    "RandomFeedError",
    "RecordingError",
    "ReferenceFailedError",
    "ReferenceFormError",
    "ReferenceImportError",
    "ReferenceNotFoundError",
    "ReferenceNotRepeatableError",
    "ReferenceUnreadableError",
    "RuntimeFailedError",
    "RuntimeNotInstalledError",
    "RuntimeOptionError",
    "RuntimeTroubleError",
    "SampleFailedError",
    "SamplesError",
    "SessionOptionValueError",
    "ShapeOptionError",
    "SubmoduleNotCalledError",
    "SubmoduleNotFoundError",
    "SubmodulePartError",
    "TemporarySpaceError",
    "UninitializedModuleError",
    "UnknownProviderError",
    "UnknownSessionOptionError",
    "UsageError",
    "WeightsError",
    "WeightsFormatError",
    "WeightsMismatchError",
    "WeightsNeedPickleError",
    "WeightsNotApplicableError",
    "WeightsNotFoundError",
    "WeightsUnreadableError",
    "listing",
    "page",
]
